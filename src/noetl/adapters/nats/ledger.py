"""The ledger on JetStream: the acknowledgement of a message is what makes an append durable."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec

from noetl.adapters.nats.wal.adoption import Adoption
from noetl.adapters.nats.wal.index import RECENT_EVENTS
from noetl.adapters.nats.wal.log import WalLog
from noetl.adapters.nats.wal.reader import WalReader
from noetl.adapters.nats.wal.stream import WalStream
from noetl.adapters.nats.wal.writer import WalWriter
from noetl.archive.wire import Codec
from noetl.errors import InvalidInput, Unavailable
from noetl.kernel.chain import LedgerHead, StreamHead, mac_of
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.stamp import Batch, Stream, prepare
from noetl.kernel.streams import root_of
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.forgetting import Family, Forgotten, Run
from noetl.ports.ledger import Adopted, Audited, Moved, Spans, moved_by_reading, read_each
from noetl.ports.wal import Mark, Materialized

__all__ = ["NatsLedger"]

_LISTEN_SECONDS = 1.0
_PAGE = 1000


class NatsLedger:
    """The append-only log in one stream of JetStream, with a table behind it for what is older.

    Whoever reads sees everything that anybody was told is committed: the stream is asked for its end first.
    """

    def __init__(
        self,
        stream: WalStream,
        table: Materialized,
        clock: Clock,
        *,
        mac_key: bytes | None = None,
        codec: Codec = "json",
        patience: float = 10.0,
        recent: int = RECENT_EVENTS,
        tidy_seconds: float = 1.0,
    ) -> None:
        """`recent` is how many events are kept at hand that the table has too; others are forgotten."""
        self.stream = stream
        self._table = table
        self._key = mac_key
        self._log = WalLog(stream, table, mac_key, recent=recent, tidy_seconds=tidy_seconds)
        self._reader = WalReader(self._log, table)
        self._writer = WalWriter(stream, self._log, self._reader, clock, mac_key, codec, patience)
        self._closed = False

    @property
    def mac_key(self) -> bytes | None:
        """The key that messages and heads are sealed with."""
        return self._key

    async def open(self) -> NatsLedger:
        """Read what the table has not. Raises Corruption if the two do not belong together."""
        await self._log.open()
        return self

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Write every draft of every batch as one message, or none."""
        self._check_open()
        prepared = prepare(batches)
        if not prepared:
            return []
        began = time.perf_counter()
        events = await self._writer.append(batches, prepared)
        metrics.observe("noetl_append_seconds", time.perf_counter() - began)
        metrics.observe("noetl_append_events", len(events))
        return events

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        """Write stamped envelopes unchanged, or none of them."""
        await self._synced()
        return await Adoption(self._log, self._reader, self._writer).run(envelopes)

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Refused: a server that appends knows the stream's end, not what the table has let go of."""
        raise InvalidInput(
            f"the events of {family.root.stream_id} cannot leave a ledger in WAL mode",
            hint="stop all servers, leave it with noetl materializer leave, and run noetl retention then",
        )

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Put a family's events back into the table: it let go of them before there was a log."""
        self._check_open()
        return await self._table.recall(family, envelopes)

    async def forgotten(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[Forgotten]:
        """What the table had let go of before there was a log."""
        self._check_open()
        return await self._table.forgotten(root=root, after=after, limit=limit)

    async def runs(self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000) -> Sequence[Run]:
        """What is left of these events."""
        self._check_open()
        return await self._table.runs(root=root, after_position=after_position, limit=limit)

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """The events of one stream, in order."""
        await self._synced()
        return await self._reader.read(stream, after_version=after_version, to_version=to_version, limit=limit)

    async def read_all(
        self, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of all streams in commit order."""
        await self._synced()
        return await self._reader.read_all(after_position, to_position, limit)

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of a root and of all streams below it, in commit order."""
        await self._synced()
        return await self._reader.read_root(root, after_position=after_position, to_position=to_position, limit=limit)

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        """The same for several roots."""
        return await read_each(self, wanted, limit)

    async def moved(self, *, after_position: int, to_position: int) -> Sequence[Moved]:
        """Every root with events in between."""
        return await moved_by_reading(self, after_position, to_position)

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """One event of a root's streams by its id."""
        await self._synced()
        return await self._reader.find(root, event_id)

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """The event that an idempotency key stands for."""
        await self._synced()
        return await self._reader.by_key(tenant_id, key)

    async def position(self) -> int:
        """The position of the last event."""
        await self._synced()
        return self._log.index.position

    async def head(self, stream: Stream) -> StreamHead | None:
        """Where a stream ends."""
        await self._synced()
        await self._log.know(Stream(stream.tenant_id, root_of(stream.stream_id)))
        found = self._log.index.head_of(stream)
        return None if found is None else self._sealed(found)

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """Stream heads in order of tenant and stream."""
        await self._synced()
        return [self._sealed(head) for head in await self._reader.heads(root=root, after=after, limit=limit)]

    async def ledger_head(self) -> LedgerHead:
        """Where the whole ledger ends."""
        await self._synced()
        head = self._log.index.head
        return msgspec.structs.replace(head, mac=self._mac(head.digest()) if head.position else None)

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """Stored events, uninterpreted, in order of position."""
        await self._synced()
        return await self._reader.audit(root=root, after_position=after_position, limit=limit)

    async def check_storage(self) -> Sequence[str]:
        """What the table says of itself, and whether the stream has lost a message in its middle."""
        self._check_open()
        tip = await self.stream.tip()
        lost = [f"stream {self.stream.name} lacks {tip.holes} messages between its ends"] if tip.holes else []
        return [*lost, *await self._table.check_storage()]

    async def subscribe(self, *, after_position: int = 0) -> AsyncIterator[Recorded]:
        """Every event after a position, as it is committed."""
        while True:
            self._check_open()
            page = await self._reader.read_all(after_position, None, _PAGE)
            for item in page:
                yield item
                after_position = item.position
            if not page:
                await self._log.wait(after_position, _LISTEN_SECONDS)

    async def pages(self, after: int, limit: int) -> tuple[Sequence[Recorded], Mark | None]:
        """Whole appends after a position, about so many events of them, and the mark at their end."""
        self._check_open()
        if self._key is None and self._log.keyed:
            raise InvalidInput(
                "the log is sealed with a key, which the wallet does not hold; nothing was copied",
                hint="copy wallet/ledger.key from a home that writes the log",
            )
        return await self._reader.pages(after, limit)

    async def wait(self, position: int, seconds: float) -> None:
        """Return when the log is beyond a position, or after a while."""
        self._check_open()
        await self._log.wait(position, seconds)

    async def close(self) -> None:
        """Let go; the connection and the table belong to whoever opened them."""
        self._closed = True
        await self._log.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger is closed")

    async def _synced(self) -> None:
        self._check_open()
        await self._log.sync()

    def _sealed(self, head: StreamHead) -> StreamHead:
        return msgspec.structs.replace(head, mac=self._mac(head.digest()))

    def _mac(self, digest: bytes) -> str | None:
        return None if self._key is None else mac_of(self._key, digest)
