"""What a spark task does in the thread that talks to Spark: views, query or code, checks, and writing.

Nothing that others could see is done here before every check has passed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.code import call_main, frame_in
from noetl.data.expectations import Counting, Expectation
from noetl.data.session.jobs import is_classic
from noetl.data.sinks import files
from noetl.data.sinks.postgres import Filled
from noetl.data.sinks.target import Target
from noetl.data.sinks.written import FileWritten, Written, preview_of
from noetl.data.sources import Frame
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Json
from noetl.tools.postgres.credential import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Done", "ExpectationFailed", "Task", "run"]

_MOST_PLAN = 1 << 20


class ExpectationFailed(NoetlError):
    """Rows have failed a check that they must not fail. Nothing was written."""

    def __init__(self, said: list[Json]) -> None:
        broken = [one for one in said if one["on_fail"] == "fail" and one["failed"]]
        listed = "; ".join(f"'{one['name']}' ({one['check']}): {one['failed']} of {one['rows']} rows" for one in broken)
        super().__init__(f"expectations failed: {listed}", hint="nothing was written; correct the rows or the check")
        self.said = said


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its inputs at hand."""

    name: str
    frames: dict[str, Frame]
    parameters: dict[str, Any]
    sql: str | None
    sql_line: int
    """In which line of its field the query begins, from 1."""
    code: str | None
    expectations: tuple[Expectation, ...]
    target: Target
    partitions: int | None
    by: tuple[str, ...]
    place: Place | None
    folder: Path
    effect_key: str
    directory: Path
    """Code may import the modules that are there."""
    masked: Callable[[Any], Any] | None
    """Takes the secrets of the execution out of what is shown."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What has come of it."""

    columns: list[Json] = []
    rows: int = 0
    preview: list[Any] = []
    expect: list[Json] = []
    written: Written | None = None
    plan: str | None = None
    folder: Path | None = None
    """Where the files are that become payloads of ours, or objects of a bucket."""
    files: tuple[FileWritten, ...] = ()


def run(session: SparkSession, task: Task) -> Done:
    """Do it. Raises whatever Spark or the user's code raises, InvalidInput, ExpectationFailed."""
    # Else Parquet gets moments in a form that only Spark's own relatives read as such.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    if task.target.kind == "files" and files.is_taken(task.target):
        return Done(written=_nothing(task.target))
    frame = _result(session, task)
    if frame is None:
        return Done()
    if task.by or task.partitions:
        how: list[Any] = [*([task.partitions] if task.partitions else []), *task.by]
        frame = frame.repartition(*how)
    counting = Counting(frame, task.expectations, task.masked)
    done = _write(counting, task)
    columns = [{"name": field.name, "type": field.dataType.simpleString()} for field in frame.schema]
    return msgspec.structs.replace(
        done, columns=columns, rows=counting.rows, expect=counting.said(), plan=_plan(counting.frame)
    )


def _result(session: SparkSession, task: Task) -> DataFrame | None:
    frames = {}
    for name, make in task.frames.items():
        frames[name] = make(session)
        frames[name].createOrReplaceTempView(name)
    if task.sql is not None:
        return session.sql(task.sql, args=dict(task.parameters) or None)
    assert task.code is not None
    given: Mapping[str, Any] = {**task.parameters, **frames, "spark": session}
    return frame_in(call_main(task.code, task.name, given, [task.directory]), session)


def _write(counting: Counting, task: Task) -> Done:
    match task.target.kind:
        case "postgres":
            return _to_postgres(counting, task)
        case "files":
            return _to_files(counting, task)
    folder, target = task.folder / "result", task.target
    found = files.write(counting.frame, target, folder)
    _check(counting)
    _complete(found, counting)
    preview = preview_of(folder, target.form, target.options)  # type: ignore[arg-type]  # a form of files
    return Done(folder=folder, files=tuple(found), preview=preview)


def _to_files(counting: Counting, task: Task) -> Done:
    target, staging = task.target, files.staging_of(task.target)
    staging.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = files.write(counting.frame, target, staging)
        _check(counting)
        _complete(found, counting)
        preview = preview_of(staging, target.form, target.options)  # type: ignore[arg-type]  # a form of files
        files.commit(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    written = Written(to=target.uri, form=target.form, mode=target.mode, rows=counting.rows,
                      bytes=sum(file.bytes for file in found), files=tuple(found))  # fmt: skip
    return Done(written=written, preview=preview)


def _to_postgres(counting: Counting, task: Task) -> Done:
    assert task.place is not None
    filled = Filled(counting.frame, task.target, task.place)
    try:
        _check(counting)
        preview = filled.preview()
        return Done(written=filled.commit(task.effect_key), preview=preview)
    except BaseException:
        with contextlib.suppress(NoetlError):  # the first error is the one to hear of
            filled.drop()
        raise


def _check(counting: Counting) -> None:
    said = counting.said()
    if any(one["on_fail"] == "fail" and one["failed"] for one in said):
        raise ExpectationFailed(said)


def _complete(found: list[FileWritten], counting: Counting) -> None:
    """Executors of other machines have disks of their own: what they write there, nobody here can see."""
    rows = [file.rows for file in found]
    if None not in rows and sum(row or 0 for row in rows) != counting.rows:
        raise Unavailable(
            f"Spark has written {counting.rows} rows, and {sum(row or 0 for row in rows)} of them are on this disk",
            hint="executors must see the directories of this process: use a disk that all of them share",
        )


def _nothing(target: Target) -> Written:
    return Written(to=target.uri, form=target.form, mode=target.mode, rows=0, bytes=0, skipped=True)


def _plan(frame: DataFrame) -> str | None:
    """How Spark has gone about it. A Connect server does not tell."""
    if not is_classic(frame.sparkSession):
        return None
    inner: Any = frame
    text = inner._sc._jvm.PythonSQLUtils.explainString(inner._jdf.queryExecution(), "formatted")  # noqa: SLF001 - `explain` only prints
    return str(text)[:_MOST_PLAN]
