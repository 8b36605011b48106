"""Several servers as a worker sees them: one that is away costs no more than the next one's answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from noetl.errors import InvalidInput
from noetl.runtime.remote.servers import Servers


class Listening:
    """A server that answers with a status, or with nothing."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.asked = 0
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        if self.status:
            head = f"HTTP/1.1 {self.status} X\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            writer.write(head.encode())
        writer.close()


@contextlib.asynccontextmanager
async def listening(*statuses: int) -> AsyncIterator[list[Listening]]:
    async with contextlib.AsyncExitStack() as opened:
        found = [Listening(status) for status in statuses]
        for one in found:
            server = await asyncio.start_server(one.answer, "127.0.0.1")
            await opened.enter_async_context(server)
            one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


async def test_one_is_asked_for_as_long_as_it_answers() -> None:
    async with listening(200, 200) as (first, second):
        servers = Servers([first.url, second.url], {})
        assert [(await servers.post("/x", b""))[0] for _ in range(3)] == [200] * 3
        assert (first.asked, second.asked) == (3, 0)


@pytest.mark.parametrize("status", [0, 503, 502])
async def test_when_it_is_away_the_next_one_is_and_remembered(status: int) -> None:
    async with listening(status, 409) as (first, second):
        servers = Servers([first.url, second.url], {})
        assert [(await servers.post("/x", b""))[0] for _ in range(3)] == [409] * 3
        assert (first.asked, second.asked) == (1, 3)


async def test_one_whose_address_nobody_has_is_passed_over() -> None:
    async with listening(200) as (only,):
        servers = Servers(["http://127.0.0.1:1", only.url], {})
        assert (await servers.post("/x", b""))[0] == 200


async def test_when_all_are_away_the_last_says_so() -> None:
    async with listening(0, 503) as (first, second):
        assert (await Servers([first.url, second.url], {}).post("/x", b""))[0] == 503
        with pytest.raises(EOFError):
            await Servers([second.url, first.url], {}).post("/x", b"")
        assert (first.asked, second.asked) == (2, 2)


async def test_one_that_does_not_answer_in_time_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    monkeypatch.setattr("noetl.runtime.remote.servers._SHORTER_SECONDS", 0.05)
    async with await asyncio.start_server(say_nothing, "127.0.0.1") as paused, listening(200) as (other,):
        url = f"http://127.0.0.1:{paused.sockets[0].getsockname()[1]}"
        assert (await Servers([url, other.url], {}).post("/x", b""))[0] == 200
        silent.set()


def test_there_is_one_at_least() -> None:
    with pytest.raises(InvalidInput, match="no server to work for"):
        Servers([], {})
