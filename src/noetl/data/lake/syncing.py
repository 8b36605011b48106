"""The lake follows the ledger: Structured Streaming from the `noetl` format, a commit of the lake for each batch.

The lake's own log is the checkpoint. Spark's, which says the same later, is thrown away with each run: a run begins
where the lake ends, whatever became of the one before. A batch leaves out what the lake has already, so a batch that
comes twice, or to two runs at once, is committed once; of two runs that want the same commit the one that comes too
late looks again.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import Commit, Lake, Snapshot
from noetl.data.lake.tasks import WRITTEN, Written, read_written, writer
from noetl.data.session.explaining import explain
from noetl.data.session.jobs import is_classic
from noetl.data.source.events import POSITION
from noetl.data.source.log import LogSpec, open_log
from noetl.data.source.options import ALL_TENANTS
from noetl.errors import Conflict, IntegrityMismatch, InvalidInput, NoetlError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Sizes", "Synced", "recognise", "sync"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.2
_TRIES = 8


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


Tell = Callable[[Synced], None]


def sync(
    spark: SparkSession,
    lake: Lake,
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
    run = _Run(spark, lake, spec, sizes or Sizes(), tell)
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


class _Run:
    """One run. What went wrong in a batch is kept here, because Spark would only pass on its text."""

    def __init__(self, spark: SparkSession, lake: Lake, spec: LogSpec, sizes: Sizes, tell: Tell) -> None:
        self._spark, self._lake, self._spec, self._sizes, self._tell = spark, lake, spec, sizes, tell
        self._failed: NoetlError | None = None
        self._began = time.monotonic()
        start = lake.snapshot()
        self._done = Synced(head=start.last_position, ledger=recognise(start, spec))

    def work(self, follow: bool, stopping: threading.Event) -> Synced:
        if not follow and self._done.head == self._done.ledger:
            return self._done
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
            raise Unavailable(f"Spark could not copy events to the lake: {explain(error).message}") from error
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        return self._done

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
            for _ in range(_TRIES):
                if self._try_batch(rows):
                    return
            raise Unavailable(
                f"{self._lake.path} was changed by others {_TRIES} times meanwhile", hint="run one sync at a time"
            )
        except NoetlError as error:
            self._failed = error
            raise
        except Exception as error:
            self._failed = Unavailable(f"a batch of the lake failed: {explain(error).message}")
            raise

    def _try_batch(self, rows: DataFrame) -> bool:
        """Copy what the lake does not have of a batch; False if somebody else was faster."""
        before = self._lake.snapshot()
        work = writer(str(self._lake.path), before.commit + 1)
        fresh = rows.filter(f"{POSITION} > {before.last_position}")
        written = read_written((row[0], row[1], row[2]) for row in fresh.mapInArrow(work, WRITTEN).collect())
        if not written:
            return True
        first = min(one.file.first_position for one in written)
        end = max(written, key=lambda one: one.last)
        files = [one.file for one in written]
        try:
            commit = self._lake.append(first, end.last, files, checksum=end.checksum, now=time.time_ns() // 1000)
        except Conflict:
            self._discard(written)
            if self._lake.snapshot().commit == before.commit:
                raise
            return False
        self._tally(commit)
        return True

    def _discard(self, written: list[Written]) -> None:
        """Nobody else knows these files, and nobody ever will."""
        for one in written:
            self._lake.place(one.file).unlink(missing_ok=True)

    def _tally(self, commit: Commit) -> None:
        done = self._done
        self._done = Synced(
            head=commit.last_position,
            ledger=max(done.ledger, commit.last_position),
            commits=done.commits + 1,
            events=done.events + commit.last_position - commit.first_position + 1,
            files=done.files + len(commit.add),
            bytes=done.bytes + sum(file.bytes for file in commit.add),
            seconds=time.monotonic() - self._began,
        )
        _log.info("the lake %s has events up to position %s", self._lake.path, commit.last_position)
        self._tell(self._done)
