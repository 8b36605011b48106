"""The door: who gets in, what a lost answer costs, and what the listener does with what is no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.data.frame.protocol import Claimed
from noetl.errors import Forbidden, InvalidInput, NotFound, Unauthenticated, Unavailable
from noetl.runtime.stages.client import RemotePlane
from noetl.runtime.stages.connections import Connections
from noetl.runtime.stages.door import ClaimRequest, Door
from noetl.runtime.stages.loopback import Loopback
from noetl.runtime.stages.paths import SLOT_ROUTES, read_path
from noetl.runtime.stages.token import StageToken
from tests.contracts.frame_plane import only
from tests.scribe import START
from tests.stagework import STAGE, Stage, done, plan_of


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@contextlib.asynccontextmanager
async def listening(stage: Stage) -> AsyncIterator[tuple[Door, str, str]]:
    door = Door()
    listener = Loopback(door)
    token = door.keep(STAGE, stage.keeper.plane)
    try:
        yield door, await listener.url(), token
    finally:
        door.leave(token)
        await listener.close()


async def post(url: str, token: str, path: str, said: Any) -> tuple[int, Any]:
    connections = Connections(url, {"Authorization": f"Bearer {token}"})
    try:
        status, body = await connections.post(path, said if isinstance(said, bytes) else msgspec.json.encode(said))
    finally:
        await connections.close()
    return status, msgspec.json.decode(body)


def test_every_route_is_one_that_is_read() -> None:
    for route in SLOT_ROUTES:
        path = route.replace("{stage_id}", "12").replace("{frame_id}", "34")
        assert read_path(path) is not None, path
    for path in ("/api/stages/x/frames/claim", "/api/frames/1/2/commit", "/api/stages/1/frames", "/api/frames//commit"):
        assert read_path(path) is None, path


@pytest.mark.parametrize("shown", ["", "nst", "nst_", "nst_1", "nst_x_aa", "nst_٣_aa", "abc_1_aa", "nst_1_"])
def test_what_is_no_token_is_that_of_no_stage(shown: str) -> None:
    assert StageToken.stage_of(shown) is None


def test_tokens_are_drawn_anew_and_name_their_stage() -> None:
    first, second = StageToken(7), StageToken(7)
    assert first.text != second.text
    assert StageToken.stage_of(first.text) == 7
    assert first.matches(first.text)
    assert not first.matches(second.text)


async def test_only_the_token_of_the_stage_opens_it(clock: VirtualClock) -> None:
    stage, other = Stage(plan_of(), clock, slices=[1]), Stage(plan_of(), clock, slices=[1])
    door = Door()
    async with stage.kept():
        token = door.keep(STAGE, stage.keeper.plane)
        elsewhere = door.keep(STAGE + 1, other.keeper.plane)
        body = msgspec.json.encode(ClaimRequest(slot=0, worker="a"))
        path = f"/api/stages/{STAGE}/frames/claim"
        for shown in ("", "Bearer ", f"Basic {token}", f"Bearer {token}x", f"Bearer {StageToken(STAGE).text}"):
            with pytest.raises(Unauthenticated, match="not that of a stage"):
                await door.answer(path, shown, body)
        with pytest.raises(Forbidden, match=f"stage {STAGE}"):
            await door.answer(path, f"Bearer {elsewhere}", body)
        with pytest.raises(NotFound):
            await door.answer("/api/stages", f"Bearer {token}", body)
        with pytest.raises(InvalidInput, match="not valid"):
            await door.answer(path, f"Bearer {token}", b'{"slot": "x"}')
        claimed = msgspec.json.decode(await door.answer(path, f"Bearer {token}", body), type=Claimed)
        assert len(claimed.frames) == 1
        door.leave(token)
        assert not door.admits(f"Bearer {token}")


async def test_a_request_that_is_repeated_gets_the_answer_that_was_lost(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1, 1, 1, 1])
    async with stage.kept(), listening(stage) as (_, url, token):
        path, asked = f"/api/stages/{STAGE}/frames/claim", {"slot": 0, "worker": "a", "number": 1}
        first, again = await post(url, token, path, asked), await post(url, token, path, asked)
        assert first == again
        _, other = await post(url, token, path, {**asked, "number": 2})
        assert other["frames"][0]["index"] == 1


async def test_a_late_commit_by_its_own_path_is_a_conflict_with_the_event(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1])
    async with stage.kept() as plane, listening(stage) as (_, url, token):
        frame = await only(plane, 0, "a")
        path, said = f"/api/frames/{frame.frame_id}/commit", {"worker": "a", "outcome": done(frame)}
        status, taken = await post(url, token, path, said)
        assert status == 200
        status, problem = await post(url, token, path, said)
        assert (status, problem["type"]) == (409, "frame_already_terminal")
        assert problem["event_id"] == str(taken["event_id"])
        status, problem = await post(url, token, "/api/frames/1/commit", said)
        assert (status, problem["title"]) == (422, "InvalidInput")
        status, leases = await post(
            url, token, f"/api/frames/{frame.frame_id}/heartbeat", {"worker": "a", "token": "x"}
        )
        assert (status, leases) == (200, {"leases": {}})


@pytest.mark.parametrize(
    "sent",
    [b"\r\n\r\n", b"HELLO\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
     b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
     b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
     b"x" * 100_000],
)  # fmt: skip
async def test_what_is_no_request_of_a_slot_ends_the_conversation(clock: VirtualClock, sent: bytes) -> None:
    stage = Stage(plan_of(), clock, slices=[1])
    async with stage.kept(), listening(stage) as (_, url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        status, _ = await post(url, "nobody", "/api/frames/commit", {})
        assert status == 401


async def test_other_methods_find_nothing(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock)
    async with listening(stage) as (_, url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /api/frames/commit HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        writer.close()
        await writer.wait_closed()


async def test_a_stage_that_moved_away_is_drained_for_slots_far_away(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1, 1])
    async with stage.kept(), listening(stage) as (door, url, token), RemotePlane(url, STAGE, token) as plane:
        frame = await only(plane, 0, "a")
        door.leave(token)
        assert (await plane.claim(0, "a")).drained
        assert await plane.commit("a", (done(frame),)) == {frame.frame_id: {"lost": True}}
        assert await plane.heartbeat("a", (frame,)) == {}
        with pytest.raises(Unauthenticated, match="not kept here any more"):
            await plane.credential("pg")


async def test_a_keeper_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.runtime.stages.client._PAUSE", 0.0)
    async with RemotePlane("http://127.0.0.1:9", STAGE, "t") as plane:
        with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:9 cannot be reached: ConnectionRefusedError"):
            await plane.claim(0, "a")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is not the address of a keeper"):
        RemotePlane("ftp://example.org", STAGE, "t")
