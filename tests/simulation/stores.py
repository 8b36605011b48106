"""The shipped adapters, as something that can be killed, copied and opened again.

Both kinds of store have a ledger with its outbox and projections, and answer the same calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.outbox import MemoryOutbox
from noetl.adapters.memory.projections import MemoryProjectionStore
from noetl.adapters.sqlite.commits import Request, Work, Writer
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.outbox import SqliteOutbox
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.adapters.sqlite.writer import LedgerWriter
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.ids import Snowflake
from noetl.kernel.stamp import Batch, IdSource, Prepared, prepare
from noetl.ports.clock import Clock

__all__ = ["BROKEN", "KEY", "Crashed", "MemoryStore", "SqliteStore", "Store", "copy_files"]

KEY = bytes(range(32))
BROKEN = Unavailable("the disk failed under ledger.db")
Answer = Sequence[Envelope] | Exception
_Written = tuple[int, Sequence[Envelope]]


class Crashed(Exception):
    """The process was killed here. Nobody hears the answer."""


class MemoryStore:
    """Memory has no disk. A restart is a new ledger that adopts the old one's events: only ids and keys start anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ids = (Snowflake(0), Snowflake(0))
        self.ledger = MemoryLedger(clock, mac_key=KEY)
        self.outbox = MemoryOutbox(self.ledger, clock)
        self.projections = MemoryProjectionStore()

    def process(self, number: int) -> MemoryLedger:
        """The ledger as one of two processes has it open. In memory all they have of their own is their ids."""
        self.ledger._ids = self._ids[number]
        return self.ledger

    async def open(self) -> None:
        """Nothing to open."""

    async def restart(self, *, kill: bool, settled: int) -> None:
        """Begin again with the events that were committed."""
        before = await self.ledger.ledger_head()
        events = [item.event for item in await self.ledger.read_all(limit=1 << 20)]
        self._ids = (Snowflake(0), Snowflake(0))
        self.ledger = MemoryLedger(self._clock, mac_key=KEY)
        await self.ledger.adopt(events)
        after = await self.ledger.ledger_head()
        assert not events or after == before, "adopting a log does not give the head it had"
        claimed = self.outbox
        self.outbox = MemoryOutbox(self.ledger, self._clock)
        self.outbox._entries, self.outbox._seen = claimed._entries, claimed._seen  # rows outlive a process
        await self.outbox.settle(settled)

    async def append_and_die(self, batches: Sequence[Batch]) -> None:
        """In memory an append has no middle."""
        raise Crashed

    async def append_group(self, appends: Sequence[Sequence[Batch]], broken: int | None) -> list[Answer]:
        """One after the other: the memory ledger commits nothing in groups."""
        answers: list[Answer] = []
        for number, batches in enumerate(appends):
            try:
                append = self._append_and_fail if number == broken else self.process(0).append
                answers.append(await append(batches))
            except NoetlError as error:
                answers.append(error)
        return answers

    async def close(self) -> None:
        """Nothing to let go of."""

    async def _append_and_fail(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        async def fail(*_: object) -> None:
            raise BROKEN

        ledger = self.process(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "_commit", fail)
            await ledger.append(batches)
        raise BROKEN  # an append that had nothing to write has come this far


class _SameAgain:
    """Ids that are the same when work is done once more, so that both ledgers write the same log."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._drawn: list[int] = []
        self._at = 0

    @contextlib.contextmanager
    def instead_of(self, writer: LedgerWriter) -> Iterator[None]:
        self._at = 0
        writer._ids = self
        try:
            yield
        finally:
            writer._ids = self._ids

    def next(self, now_ms: int, after: int = 0) -> int:
        if self._at == len(self._drawn):
            self._drawn.append(self._ids.next(now_ms, after))
        self._at += 1
        return self._drawn[self._at - 1]


class SqliteStore:
    """One database in a directory of its own. Killed, it goes on from an image of its files at that moment."""

    ledger: SqliteLedger
    outbox: SqliteOutbox
    projections: SqliteProjectionStore

    def __init__(self, clock: Clock, home: Path, *, key: bytes | None = KEY) -> None:
        self._clock = clock
        self._home = home
        self._key = key
        self._lives = 0
        self._database: Database | None = None
        self._other: tuple[Database, SqliteLedger] | None = None
        self.directory = home / "life0"

    async def open(self, *, examine: bool = False) -> None:
        """Open the files that are there; raises what the adapter says about them."""
        database = self._database = Database(self.directory / "ledger.db", threads=False)
        self.ledger = SqliteLedger(database, self._clock, mac_key=self._key)
        self.outbox = SqliteOutbox(database, self._clock)
        self.projections = SqliteProjectionStore(database, self._clock)
        await self.ledger.open(examine=examine)

    def process(self, number: int) -> SqliteLedger:
        """The ledger as one of two processes has it open. The second is started when somebody first needs it."""
        if number == 0:
            return self.ledger
        if self._other is None:
            database = Database(self.directory / "ledger.db", threads=False)
            self._other = database, SqliteLedger(database, self._clock, mac_key=self._key)
        return self._other[1]

    async def restart(self, *, kill: bool, settled: int) -> None:
        """Open again: what the disk held at the moment of the kill, or what a proper end has left."""
        if kill:
            await self._continue_from(self.image())
            return
        await self.close()
        await self.open()

    async def append_and_die(self, batches: Sequence[Batch]) -> None:
        """Die after the rows were written, before they were committed."""
        writer = self.ledger._writer
        image: list[Path] = []

        def append(
            connection: Writer, batches: Sequence[Batch], prepared: Sequence[Prepared]
        ) -> tuple[int, Sequence[Envelope]]:
            with contextlib.suppress(NoetlError):
                type(writer).append(writer, connection, batches, prepared)
            image.append(self.image())
            raise Crashed

        writer.append = append  # type: ignore[method-assign]  # the process dies here, and this object with it
        try:
            await self.ledger.append(batches)
        finally:
            await self._continue_from(image[0])

    async def append_group(self, appends: Sequence[Sequence[Batch]], broken: int | None) -> list[Answer]:
        """What is done when several requests are waiting."""
        assert self._database is not None
        writer = self.ledger._writer

        def work(number: int, batches: Sequence[Batch]) -> Work[_Written]:
            prepared = prepare(batches)
            ids = _SameAgain(writer._ids)

            def append(connection: Writer) -> _Written:
                with ids.instead_of(writer):
                    written = writer.append(connection, batches, prepared)
                if number == broken:
                    raise BROKEN
                return written

            return append

        loop = asyncio.get_running_loop()
        requests = [
            Request(work(number, batches), loop.create_future(), False) for number, batches in enumerate(appends)
        ]
        self._database._commits._commit(list(requests))
        answers: list[Answer] = []
        for request in requests:
            request.settle()
            try:
                position, events = await request.future
            except NoetlError as error:
                answers.append(error)
            else:
                self.ledger._committed(position)
                answers.append(events)
        return answers

    async def close(self) -> None:
        """Stop properly."""
        if self._other is not None:
            await self._other[1].close()
            self._other[0].close()
            self._other = None
        if self._database is not None:
            await self.ledger.close()
            self._database.close()

    def image(self) -> Path:
        """The files as a sudden stop would leave them, in a new directory."""
        self._lives += 1
        return copy_files(self.directory, self._home / f"life{self._lives}")

    async def _continue_from(self, image: Path) -> None:
        await self.close()
        shutil.rmtree(self.directory)
        self.directory = image
        await self.open()


Store = MemoryStore | SqliteStore


def copy_files(source: Path, target: Path) -> Path:
    """Copy database, write-ahead log and anchor. The shared-memory index is not part of what a disk keeps."""
    target.mkdir(parents=True)
    for file in _files(source):
        shutil.copyfile(file, target / file.name)
    return target


def _files(directory: Path) -> Iterator[Path]:
    return (file for file in directory.iterdir() if not file.name.endswith("-shm"))
