"""The page of a process that serves nothing else."""

from __future__ import annotations

import asyncio

from noetl.errors import Unavailable
from noetl.kernel.event import Json
from noetl.observe.prometheus import PrometheusRecorder
from noetl.runtime.probe import probed


async def ask(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


async def nothing(recorder: PrometheusRecorder) -> None: ...


async def test_who_waits_for_something_lives_and_is_not_well() -> None:
    async def summary() -> Json:
        return {"ok": False, "waiting": "for the queue"}

    async with probed("127.0.0.1", 0, summary, nothing) as port:
        assert await ask(port, "/live") == (200, '{"ok": true}')
        assert await ask(port, "/health") == (503, '{"ok":false}')
        assert await ask(port, "/summary") == (200, '{"ok":false,"waiting":"for the queue"}')
        assert (await ask(port, "/nothing"))[0] == 404


async def test_who_cannot_say_how_it_is_lives_too() -> None:
    async def summary() -> Json:
        raise Unavailable("the database is away")

    async with probed("127.0.0.1", 0, summary, nothing) as port:
        assert (await ask(port, "/live"))[0] == 200
        assert await ask(port, "/health") == (503, '{"ok":false,"detail":"the database is away"}')
