"""A process that stops for ever at one point of a write, for a test that kills it there.

    python crashing_writer.py ROOT KEY POINT

It prints `there` when it has come to the point: `streaming`, `linking` or `linked`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

from noetl.adapters.objects.filesystem import FilesystemObjectStore

CONTENT = b"x" * 3_000_000


def stop(*_: object, **__: object) -> NoReturn:
    sys.stdout.write("there\n")
    sys.stdout.flush()
    sys.stdin.read()
    raise SystemExit("nobody killed the writer")


async def content(point: str) -> AsyncIterator[bytes]:
    yield CONTENT
    if point == "streaming":
        await asyncio.to_thread(stop)


async def main(root: str, key: str, point: str) -> None:
    if point == "linking":
        os.link = stop
    if point == "linked":
        Path.unlink = stop  # type: ignore[method-assign]  # the draft's second name is the next thing to go
    await (await FilesystemObjectStore.open(Path(root))).put(key, content(point))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
