"""How the parts of an installation are: each says so in the values that all share, and a server can tell whoever asks.

It is a view for people and for whatever restarts processes; nothing is decided by it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec

from noetl.errors import NoetlError
from noetl.ports.kv import Kv

__all__ = ["Kind", "Word", "heard", "saying"]

Kind = Literal["publisher", "projector"]
_PREFIX = "part/"
_EVERY_SECONDS = 5.0
_LASTS_SECONDS = 30.0


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What a part has said of itself a moment ago."""

    kind: Kind
    name: str
    problem: str | None = None
    """What keeps it from its work, in its own words; they may name addresses."""


@contextlib.asynccontextmanager
async def saying(kv: Kv, kind: Kind, name: str, problem: Callable[[], str | None]) -> AsyncIterator[None]:
    """Say every now and then how a part is, for as long as the block lasts; after it, nothing more is heard of it."""
    key = f"{_PREFIX}{kind}/{name}"

    async def repeat() -> None:
        while True:
            word = Word(kind=kind, name=name, problem=problem())
            with contextlib.suppress(NoetlError):  # that it is not heard is what others will notice
                await kv.put(key, msgspec.json.encode(word), seconds=_LASTS_SECONDS)
            await asyncio.sleep(_EVERY_SECONDS)

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
        with contextlib.suppress(NoetlError):
            await kv.delete(key)


async def heard(kv: Kv) -> list[Word]:
    """What has been said in the last half minute. Raises Unavailable."""
    return [msgspec.json.decode(entry.value, type=Word) for entry in await kv.list(_PREFIX) if entry.value is not None]
