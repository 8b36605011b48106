"""Batches over HTTP: three kinds of body, problems that say what is wrong, and limits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest

from noetl.archive.jsonl import line_of
from noetl.archive.parcel import pack
from noetl.kernel.event import Envelope
from noetl.runtime.buffers import keep_buffers
from noetl.runtime.service import open_services
from noetl.runtime.service.service import Workplace
from noetl.runtime.wiring import Embedded
from noetl.server import batch
from noetl.server.app import build_app
from tests.unit.runtime.histories import EXECUTION, History, home_at, whole

ROUTE = "/api/events/batch"
TAR = {"Content-Type": "application/x-tar"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.file", "X-NoETL-Execution-Id": str(EXECUTION)}


@contextlib.asynccontextmanager
async def serving(embedded: Embedded, home: Path) -> AsyncIterator[httpx.AsyncClient]:
    place = Workplace(home=home, directory=home, slots=1)
    async with open_services(embedded, embedded.settings, place) as services:
        transport = httpx.ASGITransport(build_app(services, embedded.settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8082") as client:
            yield client


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with home_at(tmp_path / "a") as embedded:
        yield embedded


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with home_at(tmp_path / "b") as embedded:
        yield embedded


@pytest.fixture
async def client(server: Embedded, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(server, tmp_path / "b") as opened:
        yield opened


@pytest.fixture
async def buffer(source: Embedded, tmp_path: Path) -> Path:
    history = await whole(source)
    return (await keep_buffers(source, tmp_path / "a", history.root))[0]


def parcel(buffer: Path) -> bytes:
    return b"".join(pack([buffer]).chunks())


async def events_of(embedded: Embedded) -> list[Envelope]:
    return [item.event for item in await embedded.ledger.read_root(History(embedded).root)]


async def test_a_parcel_is_taken_and_taken_again(
    client: httpx.AsyncClient, source: Embedded, server: Embedded, buffer: Path, tmp_path: Path
) -> None:
    headers = {**TAR, "X-NoETL-Execution-Id": str(EXECUTION), "X-NoETL-Event-Count": "11"}
    first = await client.post(ROUTE, content=parcel(buffer), headers=headers)
    assert (first.status_code, first.json()["status"]) == (202, "completed")
    assert first.json()["execution_id"] == str(EXECUTION)
    second = await client.post(ROUTE, content=parcel(buffer), headers=headers)
    assert (second.status_code, second.json()["status"]) == (200, "already there")
    assert second.json()["position"] == first.json()["position"]
    assert await events_of(server) == await events_of(source)
    assert list((tmp_path / "b" / "incoming").iterdir()) == []


async def test_the_state_of_a_request_and_its_stream(client: httpx.AsyncClient, buffer: Path) -> None:
    taken = (await client.post(ROUTE, content=parcel(buffer), headers=TAR)).json()
    status = await client.get(f"{ROUTE}/{taken['request_id']}/status")
    assert status.json() == {
        "request_id": taken["request_id"], "status": "completed", "execution_id": str(EXECUTION), "events": 11,
        "error": None,
    }  # fmt: skip
    stream = await client.get(f"{ROUTE}/{taken['request_id']}/stream")
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert [line for line in stream.text.splitlines() if line.startswith("event:")] == [
        "event: batch.accepted", "event: batch.processing", "event: batch.completed",
    ]  # fmt: skip
    for route in ("status", "stream"):
        missing = await client.get(f"{ROUTE}/{'0' * 32}/{route}")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


async def test_events_alone_as_arrow_and_as_json(
    client: httpx.AsyncClient, source: Embedded, server: Embedded, tmp_path: Path
) -> None:
    history = History(source)
    await history.tell("playbook.initialized", payload={"path": "a/b"})  # without a document: nothing is stored
    await history.tell("workflow.initialized", node_name="load")
    (buffer,) = await keep_buffers(source, tmp_path / "a", history.root)
    arrow = await client.post(ROUTE, content=(buffer / "events.feather").read_bytes(), headers=ARROW)
    assert (arrow.status_code, arrow.json()["written"]) == (202, 2)
    await history.end()
    lines = [json.loads(line_of(event)) for event in await events_of(source)]
    added = await client.post(ROUTE, json={"events": lines})
    assert (added.status_code, added.json()["written"]) == (202, 1)
    assert await events_of(server) == await events_of(source)


async def test_events_alone_as_a_stream_of_arrow(
    client: httpx.AsyncClient, source: Embedded, server: Embedded, tmp_path: Path
) -> None:
    history = History(source)
    await history.tell("playbook.initialized", payload={"path": "a/b"})
    await history.end()
    (buffer,) = await keep_buffers(source, tmp_path / "a", history.root)
    sink = pa.BufferOutputStream()
    with (
        pa.ipc.open_file((buffer / "events.feather").read_bytes()) as file,
        pa.ipc.new_stream(sink, file.schema) as stream,
    ):
        for index in range(file.num_record_batches):
            stream.write_batch(file.get_batch(index))
    body = sink.getvalue().to_pybytes()
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    torn = await client.post(ROUTE, content=body[: len(body) // 2], headers=headers)
    assert (torn.status_code, "events: not a readable Arrow file" in torn.json()["detail"]) == (422, True)
    taken = await client.post(ROUTE, content=body, headers=headers)
    assert (taken.status_code, taken.json()["written"]) == (202, 2)
    assert await events_of(server) == await events_of(source)


async def test_events_alone_whose_payloads_are_not_here(client: httpx.AsyncClient, buffer: Path) -> None:
    refused = await client.post(ROUTE, content=(buffer / "events.feather").read_bytes(), headers=ARROW)
    assert refused.status_code == 422
    assert "which neither came nor is here" in refused.json()["detail"]


@pytest.mark.usefixtures("buffer")
async def test_a_changed_event_is_refused_by_name(
    client: httpx.AsyncClient, source: Embedded, server: Embedded
) -> None:
    events = await events_of(source)
    events[2] = msgspec.structs.replace(events[2], status="CHANGED")
    body = {"events": [json.loads(line_of(event)) for event in events]}
    refused = await client.post(ROUTE, json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"] == f"events[2]: event {events[2].event_id} does not match its checksum"
    assert await server.ledger.position() == 0


async def test_a_damaged_payload_is_refused_by_name(client: httpx.AsyncClient, server: Embedded, buffer: Path) -> None:
    file = next((buffer / "payloads").iterdir())
    file.write_bytes(file.read_bytes().swapcase())
    refused = await client.post(ROUTE, content=parcel(buffer), headers=TAR)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(f"{EXECUTION}/payloads/{file.name} is damaged")
    assert await server.ledger.position() == 0


async def test_a_parcel_without_metadata_is_refused(client: httpx.AsyncClient, buffer: Path) -> None:
    (buffer / "metadata.json").write_text("{}")
    refused = await client.post(ROUTE, content=parcel(buffer), headers=TAR)
    assert refused.status_code == 422
    assert "metadata.json is not what a buffer has" in refused.json()["detail"]


async def test_another_history_is_a_conflict(
    client: httpx.AsyncClient, server: Embedded, source: Embedded, buffer: Path
) -> None:
    await History(server).begin(note="another")
    refused = await client.post(ROUTE, content=parcel(buffer), headers=TAR)
    first = (await events_of(source))[0].event_id
    assert refused.status_code == 409
    assert f"event {first} is not the one this ledger has at version 1" in refused.json()["detail"]


async def test_another_tenants_is_forbidden_unless_it_is_taken_over(buffer: Path, tmp_path: Path) -> None:
    async with home_at(tmp_path / "labs", tenant="labs") as embedded, serving(embedded, tmp_path / "labs") as client:
        refused = await client.post(ROUTE, content=parcel(buffer), headers=TAR)
        assert refused.status_code == 403
        assert "the execution is of tenant 'acme'" in refused.json()["detail"]
        taken = await client.post(ROUTE, content=parcel(buffer), headers={**TAR, "X-NoETL-As": "labs"})
        assert taken.status_code == 202
        assert {event.tenant_id for event in await events_of(embedded)} == {"labs"}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 415),
        (b"x", {"Content-Type": "text/plain"}, 415),
        (b"", TAR, 422),
        (b"not a tar at all" * 100, TAR, 422),
        (b"", ARROW, 422),
        (b"ARROW1 and more", ARROW, 422),
        (b"{", {"Content-Type": "application/json"}, 400),
        (b"\xff", {"Content-Type": "application/json"}, 400),
        (b"[]", {"Content-Type": "application/json"}, 422),
        (b'{"events": []}', {"Content-Type": "application/json"}, 422),
        (b'{"events": [1]}', {"Content-Type": "application/json"}, 422),
        (b'{"events": [{"a": 1}]}', {"Content-Type": "application/json"}, 422),
        (b'{"events": [], "more": 1}', {"Content-Type": "application/json"}, 422),
        (b"x", {**TAR, "X-NoETL-Event-Count": "many"}, 422),
        (b"x", {**TAR, "X-NoETL-Execution-Id": "-1"}, 422),
    ],
)
async def test_bodies_that_are_none(
    body: bytes, headers: dict[str, str], status: int, client: httpx.AsyncClient, server: Embedded
) -> None:
    refused = await client.post(ROUTE, content=body, headers=headers)
    assert refused.status_code == status, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["detail"]
    assert await server.ledger.position() == 0


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large(
    announced: bool, client: httpx.AsyncClient, buffer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MOST_BYTES", 2000)
    data = parcel(buffer)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 512):
            yield data[start : start + 512]

    content: Any = data if announced else pieces()
    refused = await client.post(ROUTE, content=content, headers=TAR)
    assert refused.status_code == 413
    assert refused.json()["detail"] == "the body is larger than 2000 bytes"


async def test_the_description_names_every_body_and_answer(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()["paths"][ROUTE]["post"]
    assert set(described["requestBody"]["content"]) == {
        "application/x-tar", "application/vnd.apache.arrow.file", "application/vnd.apache.arrow.stream",
        "application/json",
    }  # fmt: skip
    assert {"200", "202", "400", "403", "409", "413", "415", "422"} <= set(described["responses"])
    names = {parameter["name"].lower() for parameter in described["parameters"]}
    assert names == {"x-noetl-execution-id", "x-noetl-event-count", "x-noetl-as", "prefer"}
