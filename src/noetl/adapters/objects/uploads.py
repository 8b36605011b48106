"""A stream sent to a cloud store in parts, of which nothing remains when it does not arrive whole.

The library ends an upload cleanly (it tells the store to drop the parts) when its source fails, but not when its
call is cancelled. So the source is read here, in the caller's own task, and handed over piece by piece; whatever
goes wrong on this side reaches the library as a source that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING

from noetl.adapters.objects.faults import Place, ask
from noetl.payloads.blocking import regroup

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

__all__ = ["PART_BYTES", "upload"]

PART_BYTES = 8 << 20  # at most 10,000 parts make an object, so it can have 78 GiB
PARTS_AT_ONCE = 2
ABORT_SECONDS = 10.0


class _Abandoned(Exception):
    """Told to the library in place of the rest of the stream."""


Handover = asyncio.Queue[bytes | _Abandoned | None]


async def upload(client: Client, path: str, source: AsyncIterable[bytes], place: Place, key: str) -> None:
    """Write the stream under `path`, replacing what is there in one step at the end."""
    pieces: Handover = asyncio.Queue(maxsize=1)
    sending = asyncio.ensure_future(_send(client, path, pieces, place, key))
    try:
        async with contextlib.aclosing(regroup(source)) as regrouped:
            async for piece in regrouped:
                await _hand_over(pieces, piece, sending)
        await _hand_over(pieces, None, sending)
        await asyncio.shield(sending)
    except BaseException:
        await _abandon(pieces, sending)
        raise


async def _send(client: Client, path: str, pieces: Handover, place: Place, key: str) -> None:
    import obstore

    await ask(
        place, key, obstore.put_async, client, path, _drain(pieces),
        use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE,
    )  # fmt: skip


async def _drain(pieces: Handover) -> AsyncIterator[bytes]:
    while (piece := await pieces.get()) is not None:
        if isinstance(piece, _Abandoned):
            raise piece
        yield piece


async def _hand_over(pieces: Handover, piece: bytes | None, sending: asyncio.Future[None]) -> None:
    """Wait for room, or for the upload to end: after it has failed nobody takes pieces any more."""
    giving = asyncio.ensure_future(pieces.put(piece))
    try:
        await asyncio.wait({giving, sending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        giving.cancel()
    if sending.done():
        sending.result()


async def _abandon(pieces: Handover, sending: asyncio.Future[None]) -> None:
    """Let the store drop what has arrived. A store that does not answer is not waited for."""
    while not pieces.empty():
        pieces.get_nowait()
    pieces.put_nowait(_Abandoned())
    try:
        await asyncio.wait({sending}, timeout=ABORT_SECONDS)
    finally:
        sending.cancel()
        if sending.done() and not sending.cancelled():
            sending.exception()  # looked at, so that it is not reported as forgotten
