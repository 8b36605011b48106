"""The lake follows the ledger: Structured Streaming from the `noetl` format, a commit of the lake for each batch.

The lake's own log is the checkpoint. Spark's, which says the same later, is thrown away with each run: a run begins
where the lake ends, whatever became of the one before. A batch leaves out what the lake has already, so a batch that
comes twice, or to two runs at once, is committed once; of two runs that want the same commit the one that comes too
late looks again.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import Lake, Snapshot
from noetl.data.lake.tasks import WRITTEN, read_written, writer
from noetl.data.session.explaining import explain
from noetl.data.session.jobs import is_classic
from noetl.data.source.events import POSITION
from noetl.data.source.log import LogSpec, open_log
from noetl.data.source.options import ALL_TENANTS
from noetl.errors import Conflict, IntegrityMismatch, InvalidInput, NoetlError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["LakeTarget", "Sizes", "Synced", "Taken", "Target", "recognise", "sync"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.2
_TRIES, _STARTS = 8, 3
_LOST = re.compile(r"Python worker (?:failed to connect back|exited unexpectedly)")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done at once. A commit has a file for each bucket and task, so larger ones mean fewer files."""

    rows_per_task: int = 65_536
    tasks_per_commit: int = 4
    every: float = 2.0
    """Seconds between two commits of a lake that is kept up to date."""


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come."""

    head: int
    """The last position of the lake."""
    ledger: int
    """The last position of the ledger when the run began, or when it was last looked at."""
    commits: int = 0
    events: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch has added."""

    last: int
    events: int
    files: int = 0
    bytes: int = 0


class Target(Protocol):
    """Where events are copied to: something that knows how far it has come, and adds a batch whole or not at all."""

    def end(self) -> Snapshot:
        """How far it has come."""
        ...

    def take(self, rows: DataFrame) -> Taken | None:
        """Add what it does not have of these rows; None if it has all of them. Raises Conflict if somebody else has
        changed it meanwhile: the caller tries again."""
        ...


Tell = Callable[[Synced], None]


def sync(
    spark: SparkSession,
    lake: Lake | Target,
    spec: LogSpec,
    *,
    follow: bool = False,
    sizes: Sizes | None = None,
    stopping: threading.Event | None = None,
    tell: Tell = lambda _: None,
) -> Synced:
    """Copy what the lake does not have, and with `follow` go on until `stopping` is set. Blocks.

    The session has the format registered for the ledger of `spec`. Raises IntegrityMismatch for a lake of another
    ledger, StorageFull, Unavailable, InvalidInput.
    """
    if not is_classic(spark):
        raise InvalidInput("a lake is not written over Spark Connect", hint="unset spark.remote for this command")
    target = LakeTarget(lake) if isinstance(lake, Lake) else lake
    run = _Run(spark, target, spec, sizes or Sizes(), tell)
    return run.work(follow, stopping or threading.Event())


def recognise(lake: Snapshot, spec: LogSpec) -> int:
    """Where the ledger ends. Raises IntegrityMismatch if it is not the one that the lake is a copy of."""
    with open_log(spec) as log:
        head = log.head()
        if lake.last_position > head:
            raise IntegrityMismatch(
                f"the ledger ends at position {head}, and the lake has events up to {lake.last_position}: "
                "the ledger was put back, or it is another one",
                hint="name another lake with --path, or delete this one",
            )
        found = log.checksum(lake.last_position) if lake.last_position else None
        if found is not None and found != lake.checksum_at_end:
            raise IntegrityMismatch(
                f"the event at position {lake.last_position} of the lake is not the one of this ledger",
                hint="name another lake with --path, or delete this one",
            )
        return head


class _WorkerLost(Unavailable):
    """A Python process of Spark's did not start or has ended, which says nothing of what it had to do."""


def _explained(error: Exception) -> Unavailable:
    said = explain(error).message
    kind = _WorkerLost if _LOST.search(said) else Unavailable
    return kind(f"Spark could not copy events to the lake: {said}", hint="run it again: it goes on where the lake ends")


class LakeTarget:
    """A lake of ours: tasks write its files, and the driver commits them."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def end(self) -> Snapshot:
        """How far it has come."""
        return self._lake.snapshot()

    def take(self, rows: DataFrame) -> Taken | None:
        """Add what it does not have of these rows."""
        before = self._lake.snapshot()
        work = writer(str(self._lake.path), before.commit + 1)
        fresh = rows.filter(f"{POSITION} > {before.last_position}")
        written = read_written((row[0], row[1], row[2]) for row in fresh.mapInArrow(work, WRITTEN).collect())
        if not written:
            return None
        first = min(one.file.first_position for one in written)
        end = max(written, key=lambda one: one.last)
        files = [one.file for one in written]
        try:
            self._lake.append(first, end.last, files, checksum=end.checksum, now=time.time_ns() // 1000)
        except Conflict:
            for file in files:  # nobody else knows these files, and nobody ever will
                self._lake.place(file).unlink(missing_ok=True)
            raise
        size = sum(file.bytes for file in files)
        return Taken(last=end.last, events=end.last - first + 1, files=len(files), bytes=size)


class _Run:
    """One run. What went wrong in a batch is kept here, because Spark would only pass on its text."""

    def __init__(self, spark: SparkSession, target: Target, spec: LogSpec, sizes: Sizes, tell: Tell) -> None:
        self._spark, self._target, self._sizes, self._tell = spark, target, sizes, tell
        self._failed: NoetlError | None = None
        self._began = time.monotonic()
        start = target.end()
        self._done = Synced(head=start.last_position, ledger=recognise(start, spec))

    def work(self, follow: bool, stopping: threading.Event) -> Synced:
        lost = 0
        while follow or self._done.head < self._done.ledger:
            before = self._done.head
            try:
                self._copy(follow, stopping)
                break
            except _WorkerLost as error:
                lost = lost + 1 if self._done.head == before else 1
                if lost == _STARTS:
                    raise
                _log.warning("%s; the copying begins again after position %s", error.message, self._done.head)
        return self._done

    def _copy(self, follow: bool, stopping: threading.Event) -> None:
        """One query of Spark's, to its end."""
        self._failed = None
        checkpoint = tempfile.mkdtemp(prefix="noetl-lake-")
        try:
            query = self._started(checkpoint, follow)
            try:
                while not stopping.is_set() and not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]
                    pass  # it takes fractions of a second, too
            finally:
                query.stop()
        except Exception as error:
            if self._failed is not None:
                raise self._failed from None
            if isinstance(error, NoetlError):
                raise
            raise _explained(error) from error
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _started(self, checkpoint: str, follow: bool) -> StreamingQuery:
        from pyspark.sql.pandas.types import from_arrow_schema

        sizes = self._sizes
        reading = self._spark.readStream.format("noetl").schema(from_arrow_schema(SCHEMA)).options(
            tenant=ALL_TENANTS,
            fromPosition=self._done.head + 1,
            rowsPerPartition=sizes.rows_per_task,
            maxPositionsPerTrigger=sizes.rows_per_task * sizes.tasks_per_commit,
        )  # fmt: skip
        writing = reading.load("events").writeStream.foreachBatch(self._batch)
        writing = writing.option("checkpointLocation", checkpoint)
        when: dict[str, Any] = {"processingTime": f"{sizes.every} seconds"} if follow else {"availableNow": True}
        return writing.trigger(**when).start()

    def _batch(self, rows: DataFrame, _number: int) -> None:
        try:
            self._take(rows)
        except NoetlError as error:
            self._failed = error
            raise
        except Exception as error:
            self._failed = _explained(error)
            raise

    def _take(self, rows: DataFrame) -> None:
        """Add a batch, and look again if somebody else was faster."""
        for number in range(_TRIES):
            try:
                taken = self._target.take(rows)
            except Conflict:
                if number == _TRIES - 1:
                    raise
                continue
            if taken is not None:
                self._tally(taken)
            return

    def _tally(self, taken: Taken) -> None:
        done = self._done
        self._done = Synced(
            head=taken.last,
            ledger=max(done.ledger, taken.last),
            commits=done.commits + 1,
            events=done.events + taken.events,
            files=done.files + taken.files,
            bytes=done.bytes + taken.bytes,
            seconds=time.monotonic() - self._began,
        )
        _log.info("the lake has events up to position %s", taken.last)
        self._tell(self._done)
