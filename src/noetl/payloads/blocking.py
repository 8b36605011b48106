"""File work beside the event loop: in a thread, in large pieces, with errors a person can act on."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import functools
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from noetl.errors import StorageFull, Unavailable

__all__ = ["PIECE_BYTES", "closing", "in_thread", "regroup", "storage_errors"]

PIECE_BYTES = 1 << 20

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work`, run in a thread, which has ended when this returns or raises.

    A cancelled caller goes on to close its files. A thread that was left behind would then write to a
    descriptor that already belongs to somebody else, so the cancellation waits for the thread.
    """
    call = functools.partial(contextvars.copy_context().run, work, *args, **kwargs)
    # A future, not a task: a loop that shuts down cancels its tasks, and would leave the thread behind.
    running = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _settled(running)
        raise


async def regroup(data: AsyncIterable[bytes], *, at_least: int = PIECE_BYTES) -> AsyncGenerator[bytes, None]:
    """The same bytes with small pieces joined, because a trip to a thread per row would cost more than the row."""
    pending = bytearray()
    async for piece in data:
        if not pending and len(piece) >= at_least:
            yield piece
            continue
        pending += piece
        if len(pending) >= at_least:
            joined = bytes(pending)
            pending.clear()
            yield joined
    if pending:
        yield bytes(pending)


@asynccontextmanager
async def closing(stream: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """The stream, closed when the block ends, so that no file stays open until somebody collects garbage."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about `path` into the error tree."""
    try:
        yield
    except OSError as error:
        raise _explained(error, path) from error


def _explained(error: OSError, path: Path) -> Unavailable:
    if error.errno in _FULL:
        return StorageFull(f"no room to write '{path}': {error.strerror}", hint="free space or raise the quota")
    if error.errno in _FORBIDDEN:
        return Unavailable(
            f"'{path}' may not be used: {error.strerror}", hint="give the user that runs this read and write access"
        )
    if error.errno == errno.EROFS:
        return Unavailable(f"'{path}' cannot be written: {error.strerror}", hint="mount it writable or choose another")
    return Unavailable(f"'{path}' cannot be used: {error.strerror or error}")


async def _settled(running: asyncio.Future[T]) -> None:
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue  # the caller already raises one cancellation; a second changes nothing
    if not running.cancelled():
        running.exception()  # looked at, so that it is not reported as forgotten
