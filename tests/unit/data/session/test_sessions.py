"""The life of the process's session, with another way to open one in the place of Spark's."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from noetl.data.session import sessions as module
from noetl.data.session.conf import SessionConf
from noetl.data.session.refusals import SparkLost, SparkUnavailable
from noetl.data.session.sessions import SparkSessions
from noetl.errors import Unavailable

CONF = SessionConf(master="local[2]")


class Stub:
    """An opened session that dies and is closed when it is told to."""

    def __init__(self) -> None:
        self.dead = False
        self.closed = 0
        self.scratch = Path("/")
        self.info = module.SessionInfo(kind="own", master="local[2]", spark="4")

    def is_dead(self) -> bool:
        return self.dead

    def ends_within(self, _: float) -> bool:
        return self.dead

    def has(self, session: Any) -> bool:
        return session is self

    def first_difference(self, _: SessionConf) -> None:
        return None

    def new_session(self, _: SessionConf) -> Any:
        return self

    def close(self) -> None:
        self.closed += 1


class Opening:
    """Opens stubs, once it is let; the first `failures` times it fails."""

    def __init__(self, failures: int = 0) -> None:
        self.opened: list[Stub] = []
        self.failures = failures
        self.refusal: type[SparkUnavailable] = SparkUnavailable
        self.let = threading.Event()
        self.let.set()

    def __call__(self, *_: Any, **__: Any) -> Stub:
        assert self.let.wait(30)
        if self.failures:
            self.failures -= 1
            raise self.refusal("not today")
        self.opened.append(Stub())
        return self.opened[-1]


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Opening:
    opening = Opening()
    monkeypatch.setattr(module, "open_session", opening)
    return opening


async def test_preparing_returns_at_once_and_all_who_ask_get_the_one(opening: Opening, tmp_path: Path) -> None:
    opening.let.clear()
    sessions = SparkSessions(tmp_path)
    sessions.prepare(CONF)
    assert sessions.info() is None
    waiting = [asyncio.create_task(sessions.get(CONF)) for _ in range(3)]
    opening.let.set()

    assert len({id(found) for found in await asyncio.gather(*waiting)}) == 1
    assert len(opening.opened) == 1
    info = sessions.info()
    assert info is not None
    assert info.kind == "own"


async def test_who_gives_up_waiting_does_not_stop_it(opening: Opening, tmp_path: Path) -> None:
    opening.let.clear()
    sessions = SparkSessions(tmp_path)
    impatient = asyncio.create_task(sessions.get(CONF))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    opening.let.set()

    await sessions.get(CONF)
    assert len(opening.opened) == 1


async def test_a_start_that_failed_is_tried_again(opening: Opening, tmp_path: Path) -> None:
    opening.failures = 1
    sessions = SparkSessions(tmp_path)

    with pytest.raises(SparkUnavailable, match="not today"):
        await sessions.get(CONF)

    await sessions.get(CONF)
    assert len(opening.opened) == 1


async def test_one_that_was_killed_while_it_started_is_started_again_but_not_for_ever(
    opening: Opening, tmp_path: Path
) -> None:
    opening.failures, opening.refusal = 2, SparkLost
    sessions = SparkSessions(tmp_path)

    await sessions.get(CONF)
    assert len(opening.opened) == 1

    opening.failures = 3
    opening.opened[0].dead = True
    with pytest.raises(SparkLost, match="not today"):
        await sessions.get(CONF)


async def test_who_has_a_session_of_a_dead_one_can_tell(opening: Opening, tmp_path: Path) -> None:
    sessions = SparkSessions(tmp_path)
    first = await sessions.get(CONF)
    assert not await sessions.is_lost(first)

    opening.opened[0].dead = True
    assert await sessions.is_lost(first)
    second = await sessions.get(CONF)
    assert await sessions.is_lost(first)
    assert not await sessions.is_lost(second)


async def test_a_dead_one_is_replaced_once(opening: Opening, tmp_path: Path) -> None:
    sessions = SparkSessions(tmp_path)
    await sessions.get(CONF)
    opening.opened[0].dead = True

    first, second = await asyncio.gather(sessions.get(CONF), sessions.get(CONF))

    assert first is second
    assert [stub.closed for stub in opening.opened] == [1, 0]


async def test_closing_ends_it_once_and_for_all(opening: Opening, tmp_path: Path) -> None:
    sessions = SparkSessions(tmp_path)
    await sessions.get(CONF)

    sessions.close()
    sessions.close()

    assert opening.opened[0].closed == 1
    with pytest.raises(Unavailable, match="are closed"):
        await sessions.get(CONF)


async def test_closing_waits_for_one_that_is_starting(opening: Opening, tmp_path: Path) -> None:
    opening.let.clear()
    sessions = SparkSessions(tmp_path)
    sessions.prepare(CONF)
    closing = asyncio.create_task(asyncio.to_thread(sessions.close))
    opening.let.set()
    await closing

    assert opening.opened[0].closed == 1


def test_closing_what_was_never_opened_is_nothing(tmp_path: Path) -> None:
    SparkSessions(tmp_path).close()


def test_a_process_shares_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_shared", [])
    registered: list[Any] = []
    monkeypatch.setattr("atexit.register", registered.append)

    first = SparkSessions.shared(tmp_path)

    assert SparkSessions.shared(tmp_path / "another") is first
    assert registered == [first.leave]
    first.close()
    assert SparkSessions.shared(tmp_path) is not first


def test_the_end_of_the_process_does_not_wait_for_one_that_is_starting(opening: Opening, tmp_path: Path) -> None:
    opening.let.clear()
    sessions = SparkSessions(tmp_path)
    sessions.prepare(CONF)

    sessions.leave()

    assert sessions.is_closed
    opening.let.set()


async def test_the_end_of_the_process_ends_one_that_runs(opening: Opening, tmp_path: Path) -> None:
    sessions = SparkSessions(tmp_path)
    await sessions.get(CONF)

    sessions.leave()

    assert opening.opened[0].closed == 1
