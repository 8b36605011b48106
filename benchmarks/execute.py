"""Accepting an execution over HTTP, against an empty handler of the same framework.

Both servers are processes of their own, asked by the same client over the same number of connections. Ours answers
once the execution's first events are durable. It has no worker slots: what is measured is accepting, not running.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Measurement, alternate, workplace

__all__ = ["execute"]

_CONNECTIONS = 16
_REQUESTS = 800
_BODY = b'{"path": "bench", "payload": {"day": "2026-03-01", "limit": 10}}'
_DOCUMENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: bench, path: bench}
workload: {day: "", limit: 1}
workflow:
  - step: start
    tool: {kind: python, code: "result = 1"}
"""


def execute() -> Measurement:
    """Half of all requests to /api/execute are answered in this time; the same of an empty handler."""
    with (
        tempfile.TemporaryDirectory(dir=workplace()) as folder,
        _server("ours", folder) as ours,
        _server("empty", folder) as empty,
    ):
        return alternate(
            "execute",
            "s",
            lambda _: asyncio.run(_median(ours, "/api/execute")),
            lambda _: asyncio.run(_median(empty, "/empty")),
            detail={"connections": _CONNECTIONS, "requests": _REQUESTS},
        )


async def _median(port: int, path: str) -> float:
    """The median of what each request took, over some connections that ask one after the other."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
    took: list[float] = []

    async def ask(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count):
            begun = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(time.perf_counter() - begun)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(answer.decode())
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(ask(_REQUESTS // _CONNECTIONS) for _ in range(_CONNECTIONS)))
    return statistics.median(took)


@contextlib.contextmanager
def _server(kind: str, folder: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.execute", kind, folder], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


async def _serve_empty() -> None:
    import uvicorn
    from fastapi import FastAPI

    from noetl.server.running import bind

    app = FastAPI()

    @app.post("/empty")
    async def empty() -> dict[str, str]:
        return {}

    listening = bind("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    await uvicorn.Server(config).serve(sockets=[listening])


async def _serve_ours(folder: str) -> None:
    from noetl.runtime.home import Home
    from noetl.runtime.service import Workplace, open_services
    from noetl.runtime.wiring import open_embedded
    from noetl.server.app import build_app
    from noetl.server.running import bind, serve
    from noetl.settings import Settings

    home, settings = Home(Path(folder) / "home"), Settings()
    place = Workplace(home=home.path, directory=Path(folder), slots=0)
    async with (
        open_embedded(home, settings, create=True) as embedded,
        open_services(embedded, settings, place) as services,
    ):
        await embedded.catalog.register("default", "bench", "Playbook", _DOCUMENT)
        listening = bind("127.0.0.1", 0)
        print(listening.getsockname()[1], flush=True)
        await serve(build_app(services, settings), services, listening, drain=5.0)


if __name__ == "__main__":
    asyncio.run(_serve_empty() if sys.argv[1] == "empty" else _serve_ours(sys.argv[2]))
