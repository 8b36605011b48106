"""Envelopes that another ledger has stamped: they go ahead in parts, and one message makes all of them count."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from noetl.adapters.nats.wal.index import root_of_event
from noetl.adapters.nats.wal.log import WalLog
from noetl.adapters.nats.wal.reader import WalReader
from noetl.adapters.nats.wal.writer import WalWriter
from noetl.errors import Conflict, IdempotencyMismatch
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.histories import is_the_same
from noetl.kernel.stamp import adopt, streams_of_event
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Adopted

__all__ = ["Adoption"]

_CHUNK = 200
_Place = tuple[Stream, int]


class Adoption:
    """One call of `adopt`. What it has sent ahead means nothing before the last message does."""

    def __init__(self, log: WalLog, reader: WalReader, writer: WalWriter) -> None:
        self._log = log
        self._reader = reader
        self._writer = writer
        self._heads: dict[Stream, StreamHead | None] = {}
        self._taken: dict[_Place, str] = {}
        self._keys: dict[tuple[str, str], int] = {}
        self._present = 0

    async def run(self, envelopes: Iterable[Envelope]) -> Adopted:
        """Write them. The iterable may take its time, so it is asked in a thread, for some at a time."""
        nonce, rest = uuid.uuid4().hex, iter(envelopes)
        parts: list[int] = []
        waiting: list[Envelope] = []
        written = 0
        while chunk := await asyncio.to_thread(_next, rest):
            if waiting:
                parts += await self._writer.publish_parts(waiting, nonce)
            waiting = await self._new(chunk)
            written += len(waiting)
        if not written:
            return Adopted(written=0, present=self._present)
        outcome = await self._writer.publish_adopted(waiting, parts, nonce)
        if not outcome.counts:
            raise Conflict(
                f"the log has moved meanwhile: {outcome.refusal or 'it is not known how far'}; nothing was adopted",
                hint="do it again",
            )
        return Adopted(written=written, present=self._present)

    async def _new(self, chunk: Sequence[Envelope]) -> list[Envelope]:
        found = []
        for event in chunk:
            await self._log.know(root_of_event(event))
            for stream in streams_of_event(event):
                self._heads.setdefault(stream, self._log.index.head_of(stream))
            if await self._is_present(event):
                self._present += 1
                continue
            await self._check_key(event)
            adopt(event, self._heads)
            self._taken[_place(event)] = event.envelope_checksum
            found.append(event)
        return found

    async def _is_present(self, event: Envelope) -> bool:
        """True when the stream has this very event already; another one in its place is a split history."""
        stream, version = _place(event)
        head = self._heads[stream]
        if head is None or version > head.version:
            return False
        checksum = self._taken.get((stream, version))
        if checksum is None:
            here = await self._reader.read(stream, after_version=version - 1, to_version=version, limit=1)
            checksum = here[0].event.envelope_checksum if here else None
        return is_the_same(event, checksum)

    async def _check_key(self, event: Envelope) -> None:
        if event.idempotency_key is None:
            return
        name = (event.tenant_id, event.idempotency_key)
        known = self._keys.get(name)
        if known is None:
            here = await self._reader.by_key(*name)
            known = None if here is None else here.event.event_id
        if known is not None:
            raise IdempotencyMismatch(event.idempotency_key, known)
        self._keys[name] = event.event_id


def _next(rest: Iterator[Envelope]) -> list[Envelope]:
    return list(islice(rest, _CHUNK))


def _place(event: Envelope) -> _Place:
    return Stream(event.tenant_id, event.stream_id), event.stream_version
