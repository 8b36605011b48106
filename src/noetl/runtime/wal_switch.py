"""Leaving the log on JetStream, and beginning a new one where the old one is lost."""

from __future__ import annotations

import contextlib

import msgspec

from noetl.errors import Corruption, InvalidInput
from noetl.ports.wal import Mark
from noetl.runtime.home import Home
from noetl.runtime.wal import open_materializer, open_stream, open_table
from noetl.settings import Settings

__all__ = ["Switched", "begin_anew", "leave"]


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """Where the database ends, and how many events were copied into it before."""

    position: int
    copied: int = 0


async def leave(home: Home, settings: Settings) -> Switched:
    """Copy the rest of the log, and make the database one that is written directly again.

    The stream takes nothing more from the first moment on, so nobody is told of an append that is not copied. Killed
    anywhere, it is done again.
    """
    async with open_materializer(home, settings, batch=1000) as opened:
        await opened.stream.seal()
        copied = await opened.materializer.drain()
        position = await opened.ledger.position()
        if (await opened.table.standing()).head.position != position:
            raise Corruption("the table does not end where the log does", hint="run noetl verify --all")
        await opened.table.rebind(None)
        await opened.stream.delete()
    return Switched(position=position, copied=copied)


async def begin_anew(home: Home, settings: Settings) -> Switched:
    """Begin a new log behind what the database has. Raises InvalidInput while the old one can still be read."""
    async with open_table(home, settings) as (table, opened):
        stream = await open_stream(settings, opened)
        standing = await table.standing()
        mark = standing.mark
        with contextlib.suppress(Corruption):
            tip = await stream.tip()
            if mark is not None and tip.life == mark.life and tip.first <= mark.seq + 1 and tip.last >= mark.seq:
                raise InvalidInput(
                    f"the log in stream {stream.name} is whole: nothing has to begin anew",
                    hint="noetl materializer copies it; noetl materializer leave ends it",
                )
        at = standing.head.position
        await stream.delete()
        tip = await stream.ensure(begins=at)
        await table.rebind(Mark(stream=stream.name, life=tip.life, seq=0, position=at))
    return Switched(position=at)
