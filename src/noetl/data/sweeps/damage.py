"""What is not as the log says, found by Spark: executors read the log and every object that it needs.

An object is read once, however many events need it. What lists name is read in a second round, unless an event needs
it, too. The driver gets numbers, and one by one what is missing or damaged, in the order of the log.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl.data.session.unpacked import run_unpacked
from noetl.data.sweeps.roots import table_of
from noetl.data.sweeps.spec import CHECKED, NEEDS, SweepSpec, columns, ddl
from noetl.kernel.tail import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Checked", "Damage", "Unsound"]

_TASKS = "noetl.data.sweeps.checking"
_SPAN = 20_000
_TASKS_PER_CORE = 8
_PAGE = 500
_READ = 500
"""Objects that are worth a task of their own to read."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    objects: int
    sound_bytes: int
    unsound: int


class Unsound(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is missing or damaged, and the position of the first event that needs it."""

    key: str
    root: Stream | None
    """The archived execution that the event is of; None for one that is in the ledger."""
    position: int
    condition: str


class Damage:
    """One verification. The methods are called one after the other, in a thread that may wait."""

    def __init__(self, session: SparkSession, spec: SweepSpec) -> None:
        self._session = session
        self._spec = spec
        self._told: Iterator[Any] = iter(())
        self._roots: Sequence[Stream] = ()
        self._tasks = max(1, session.sparkContext.defaultParallelism) * _TASKS_PER_CORE

    def check(self, position: int, roots: Sequence[Stream] = ()) -> Checked:
        """Read what events up to a position need, and what those of archived `roots` need."""
        from pyspark.sql.functions import expr

        spans = [(after, min(after + _SPAN, position)) for after in range(0, position, _SPAN)]
        rows = pa.table({"after": [one[0] for one in spans], "to": [one[1] for one in spans]}, _SPANS)
        told = self._session.createDataFrame(rows).repartition(max(1, min(self._tasks, len(spans))))
        needs = self._run("need_objects", told, NEEDS)
        if roots:
            self._roots = roots
            shared = self._session.createDataFrame(table_of(roots)).repartition(min(self._tasks, len(roots)))
            needs = needs.union(self._run("need_archived", shared, NEEDS))
        needed = _once(needs).localCheckpoint()
        direct = self._checked(needed)
        listed = direct.where("condition IS NULL AND key IS NOT NULL").select(*NEEDS.names)
        # What both an event and a list name has been read; the list may be the one that comes first.
        inner = self._checked(_once(listed).join(needed.select("key"), "key", "left_anti"))
        whole = direct.where("condition IS NOT NULL OR checked IS NOT NULL").union(inner)
        first = listed.groupBy("key").agg(expr("min(struct(rank, position))").alias("listed"))
        unsound = (
            whole.where("condition IS NOT NULL")
            .join(first, "key", "left")
            .withColumn("own", expr("struct(rank, position)"))
            .selectExpr("key", "least(own, coalesce(listed, own)) AS place", "turn", "condition")
            .localCheckpoint()
        )
        found = whole.selectExpr(
            "coalesce(sum(checked), 0) AS objects", "coalesce(sum(sound_bytes), 0) AS sound_bytes",
            "count(condition) AS unsound",
        ).first()  # fmt: skip
        assert found is not None
        self._told = iter(unsound.orderBy("place", "turn", "key").toLocalIterator())
        return Checked(**found.asDict())

    def some(self) -> list[Unsound]:
        """The next of what is not sound, in the order of the log; nothing when that was all."""
        return [self._unsound(row) for row in islice(self._told, _PAGE)]

    def _unsound(self, row: Any) -> Unsound:
        rank, position = row["place"]
        root = self._roots[rank - 1] if rank else None
        return Unsound(key=row["key"], root=root, position=position, condition=row["condition"])

    def _checked(self, needs: DataFrame) -> DataFrame:
        needs = needs.select(*NEEDS.names).localCheckpoint()
        tasks = min(self._tasks, 1 + needs.count() // _READ)
        return self._run("check_objects", needs.repartition(tasks), CHECKED).localCheckpoint()

    def _run(self, task: str, rows: DataFrame, schema: pa.Schema) -> DataFrame:
        argument = msgspec.msgpack.encode(self._spec)
        return rows.mapInArrow(functools.partial(run_unpacked, f"{_TASKS}:{task}", argument), ddl(schema))


def _once(needs: DataFrame) -> DataFrame:
    """Each object with the first event that needs it."""
    from pyspark.sql.functions import expr

    return (
        needs.groupBy("key")
        .agg(expr("min(struct(rank, position, turn, sha256, bytes, listing))").alias("first"))
        .select("key", "first.*")
    )


_SPANS = columns(after=pa.int64(), to=pa.int64())
