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

from noetl.errors import AccessRefused, StorageFull, Unavailable

__all__ = ["PIECE_BYTES", "closing", "in_thread", "made_ahead", "regroup", "storage_errors", "watched"]

PIECE_BYTES = 1 << 20

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
_WRONG_NAME = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})

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


async def made_ahead(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Pieces that take work to make, made in a thread: the next one while the consumer is busy with the last."""
    loop = asyncio.get_running_loop()
    coming = loop.run_in_executor(None, next, pieces, None)
    try:
        while (piece := await asyncio.shield(coming)) is not None:
            coming = loop.run_in_executor(None, next, pieces, None)
            yield piece
    finally:
        await _settled(coming)


async def watched(pieces: AsyncIterator[bytes], look: Callable[[bytes], object]) -> AsyncGenerator[bytes, None]:
    """The same pieces, each looked at in a thread, in their order, while the consumer is busy with it."""
    loop = asyncio.get_running_loop()
    looking: asyncio.Future[object] | None = None
    try:
        async with closing(pieces) as taken:
            async for piece in taken:
                if looking is not None:
                    await asyncio.shield(looking)
                looking = loop.run_in_executor(None, look, piece)
                yield piece
        if looking is not None:
            await asyncio.shield(looking)
    finally:
        if looking is not None:
            await _settled(looking)


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
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
        return AccessRefused(
            f"'{path}' may not be used: {error.strerror}", hint="give the user that runs this read and write access"
        )
    if error.errno == errno.EROFS:
        return AccessRefused(
            f"'{path}' cannot be written: {error.strerror}", hint="mount it writable or choose another"
        )
    if error.errno in _WRONG_NAME:
        return AccessRefused(f"'{path}' cannot be used: {error.strerror}", hint="choose another name")
    return Unavailable(f"'{path}' cannot be used: {error.strerror or error}")


async def _settled(running: asyncio.Future[T]) -> None:
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue  # the caller already raises one cancellation; a second changes nothing
    if not running.cancelled():
        running.exception()  # looked at, so that it is not reported as forgotten
