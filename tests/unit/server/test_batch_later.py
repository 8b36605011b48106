"""Deliveries that nobody waits for: accepted and kept, written by this server or by the next one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl.errors import Unavailable
from noetl.kernel.event import Envelope
from noetl.ports.ledger import Stream
from noetl.runtime import incoming
from noetl.runtime.buffers import keep_buffers
from noetl.runtime.incoming import Incoming
from noetl.runtime.ingest import Ingest
from noetl.runtime.wiring import Embedded
from tests.unit.runtime.histories import EXECUTION, History, home_at, whole
from tests.unit.server.test_batch import ROUTE, TAR, events_of, parcel, serving

LATER = {**TAR, "Prefer": "respond-async"}


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with home_at(tmp_path / "a") as embedded:
        yield embedded


@pytest.fixture
async def body(source: Embedded, tmp_path: Path) -> bytes:
    history = await whole(source)
    return parcel((await keep_buffers(source, tmp_path / "a", history.root))[0])


@contextlib.asynccontextmanager
async def server_at(place: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Embedded]]:
    async with home_at(place) as embedded, serving(embedded, place) as client:
        yield client, embedded


async def ended(client: httpx.AsyncClient, request_id: str) -> list[str]:
    async with asyncio.timeout(30):
        stream = await client.get(f"{ROUTE}/{request_id}/stream")
    return [line.removeprefix("event: batch.") for line in stream.text.splitlines() if line.startswith("event:")]


async def states(embedded: Embedded) -> list[str]:
    return [item.event.event_type for item in await embedded.ledger.read(Stream("acme", "tenant/acme"))]


async def kept(embedded: Embedded) -> list[str]:
    return [info.key async for info in embedded.objects.list("noetl/incoming/")]


def lame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and gets to nothing else."""

    async def never(_: Incoming) -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(Incoming, "work", never)


async def test_it_is_accepted_at_once_and_written_then(source: Embedded, body: bytes, tmp_path: Path) -> None:
    async with server_at(tmp_path / "b") as (client, server):
        accepted = await client.post(ROUTE, content=body, headers=LATER)
        assert (accepted.status_code, accepted.json()["status"]) == (202, "accepted")
        assert accepted.headers["preference-applied"] == "respond-async"
        assert accepted.json()["execution_id"] == str(EXECUTION)
        request_id = accepted.json()["request_id"]
        assert accepted.headers["location"] == f"{ROUTE}/{request_id}/status"
        assert await ended(client, request_id) == ["accepted", "processing", "completed"]
        assert await events_of(server) == await events_of(source)
        again = await client.post(ROUTE, content=body, headers=LATER)
        assert (again.status_code, again.json()["status"]) == (200, "already there")
        assert (again.json()["request_id"], await states(server)) == (
            request_id, ["batch.accepted", "batch.processing", "batch.completed"],
        )  # fmt: skip


async def test_what_is_wrong_with_it_is_said_at_once(body: bytes, tmp_path: Path) -> None:
    async with server_at(tmp_path / "b") as (client, server):
        for content, headers, status in (
            (body[:-2000], LATER, 422), (b"{", {**LATER, "Content-Type": "application/json"}, 400),
            (b"", {**LATER, "Content-Type": "text/plain"}, 415),
        ):  # fmt: skip
            refused = await client.post(ROUTE, content=content, headers=headers)
            assert refused.status_code == status, refused.text
        assert (await kept(server), await server.ledger.position()) == ([], 0)


async def test_the_next_server_goes_on(
    source: Embedded, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        lame(patched)
        async with server_at(tmp_path / "b") as (client, server):
            request_id = (await client.post(ROUTE, content=body, headers=LATER)).json()["request_id"]
            status = (await client.get(f"{ROUTE}/{request_id}/status")).json()
            assert status["status"] == "accepted"
            again = await client.post(ROUTE, content=body, headers=LATER)
            assert (again.json()["status"], again.json()["request_id"]) == ("accepted", request_id)
            assert len(await kept(server)) == 1
    async with server_at(tmp_path / "b") as (client, server):
        assert await ended(client, request_id) == ["accepted", "processing", "completed"]
        assert await events_of(server) == await events_of(source)
        assert await states(server) == ["batch.accepted", "batch.processing", "batch.completed"]


@pytest.mark.parametrize("moment", ["batch.accepted", "batch.processing", "adopt", "batch.completed", "delete"])
async def test_killed_anywhere_it_is_written_once(
    moment: str, source: Embedded, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was to be done next is not done any more, by a server that is gone then."""
    with monkeypatch.context() as patched:
        async with server_at(tmp_path / "b") as (client, server):
            gone = asyncio.Event()

            async def die(*_: Any, **__: Any) -> Any:
                gone.set()
                await asyncio.Event().wait()

            tell = Ingest._tell

            async def tell_or_die(self: Ingest, origin: Any, state: str, payload: Any) -> None:
                if f"batch.{state}" == moment:
                    await die()
                await tell(self, origin, state, payload)

            patched.setattr(Ingest, "_tell", tell_or_die)
            if moment == "adopt":
                patched.setattr(type(server.ledger), "adopt", die)
            if moment == "delete":
                patched.setattr(type(server.objects), "delete", die)
            sending = asyncio.create_task(client.post(ROUTE, content=body, headers=LATER))
            async with asyncio.timeout(30):
                await gone.wait()
            if moment != "batch.accepted":
                assert (await sending).status_code == 202
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    await forget_leases(tmp_path / "b")
    async with server_at(tmp_path / "b") as (client, server):
        assert await waited_for(server) == []
        told: list[Envelope] = await events_of(server)
        assert told == await events_of(source)
        assert await states(server) == ["batch.accepted", "batch.processing", "batch.completed"]


async def forget_leases(place: Path) -> None:
    """As a minute does that passes."""
    async with home_at(place) as embedded:
        for key in await kept(embedded):
            held = await embedded.leases.holder(f"batch/{key}")
            if held is not None:
                await embedded.leases.release(held)


async def waited_for(server: Embedded) -> list[str]:
    """What still waits after all that could be written was; a disk may take its time."""
    for _ in range(600):
        if not await kept(server):
            return []
        await asyncio.sleep(0.05)
    return await kept(server)


async def test_another_history_that_came_meanwhile_is_a_failure_that_is_told(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        lame(patched)
        async with server_at(tmp_path / "b") as (client, server):
            request_id = (await client.post(ROUTE, content=body, headers=LATER)).json()["request_id"]
            await History(server).begin(note="another")
    async with server_at(tmp_path / "b") as (client, server):
        assert (await ended(client, request_id))[-1] == "failed"
        status = (await client.get(f"{ROUTE}/{request_id}/status")).json()
        assert "is not the one this ledger has at version 1" in status["error"]
        assert await waited_for(server) == []


async def test_a_store_that_is_away_is_waited_for(
    source: Embedded, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "_LOOK_SECONDS", 0.05)
    take, tries = Ingest.take, 0

    async def away(self: Ingest, *given: Any, **more: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("the database is away")
        return await take(self, *given, **more)

    monkeypatch.setattr(Ingest, "take", away)
    async with server_at(tmp_path / "b") as (client, server):
        request_id = (await client.post(ROUTE, content=body, headers=LATER)).json()["request_id"]
        assert await ended(client, request_id) == ["accepted", "processing", "completed"]
        assert (tries, await events_of(server)) == (3, await events_of(source))


async def test_when_enough_wait_no_more_are_taken(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lame(monkeypatch)
    monkeypatch.setattr(incoming, "MOST_WAITING", 1)
    async with server_at(tmp_path / "b") as (client, server):
        assert (await client.post(ROUTE, content=body, headers=LATER)).status_code == 202
        refused = await client.post(ROUTE, content=body, headers=LATER)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "1 deliveries wait already" in refused.json()["detail"]
        assert len(await kept(server)) == 1
