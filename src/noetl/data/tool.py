"""The spark kind: SQL or DataFrame code over bound inputs (DESIGN 6.2)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.bucket import already_there, open_bucket, publish
from noetl.data.expectations import expectations_of
from noetl.data.faults import blame
from noetl.data.means import Means
from noetl.data.modules import names_used
from noetl.data.printed import Printed, capture
from noetl.data.session import SessionConf, SettingsDiffer, SparkLost, SparkSessions, SparkUnavailable, explain, run_job
from noetl.data.session.tasks import is_loss
from noetl.data.sinks import Target, target_of
from noetl.data.sinks.kept import keep, keep_json, keep_text
from noetl.data.source import Place
from noetl.data.sources import Frame, Reading, open_source
from noetl.data.work import Done, ExpectationFailed, Task, run
from noetl.errors import InvalidInput, NoetlError, NotFound, StorageFull, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.lazy import plain
from noetl.payloads.blocking import in_thread
from noetl.payloads.tables import Rows, TableValue
from noetl.tools.base import Call, Outcome, Rendering, failed, ok
from noetl.tools.postgres.credential import place_of
from noetl.tools.values import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SparkTool"]

_RUNS = 3
_ONLY_READS = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:select|with|values|from)\b", re.IGNORECASE)
_log = logging.getLogger(__name__)


class SparkTool:
    """Runs queries and code on the Spark of this process."""

    kind = "spark"
    rendering: Mapping[str, Rendering] = {
        "sql": "strict",
        "code": "code",
        "inputs": "lazy",
        "input": "lazy",
        "expect": "raw",
        "output": "strict",
    }
    required: tuple[tuple[str, ...], ...] = (("sql", "code"),)

    def __init__(
        self, *, sessions: Callable[[], SparkSessions], conf: Callable[[Mapping[str, Any]], SessionConf], means: Means
    ) -> None:
        """`conf` puts what a playbook asks of a session over the settings of this installation."""
        self._sessions = sessions
        self._conf = conf
        self._means = means

    def side_effecting(self, fields: Json) -> bool:
        """Nobody knows what code does. A query that only reads, and whose rows we keep, can be run again."""
        output = fields.get("output") or {}
        if any(output.get(name) for name in ("path", "resource", "table")):
            return True
        return not _ONLY_READS.match(str(fields.get("sql") or ""))

    def prepare(self, asked: Mapping[str, Any]) -> None:
        """Begin to start Spark as a playbook asks for it. What is wrong is said by the first task."""
        with contextlib.suppress(NoetlError):
            self._sessions().prepare(self._conf(asked))

    async def run(self, call: Call) -> Outcome:
        """Run the query or the code of a task.

        One whose Spark was lost is run again, as it is when the whole process was killed and the task is delivered once
        more. One that takes Spark with it each time fails in the end.
        """
        lost = SparkLost("")
        for _ in range(_RUNS):
            try:
                return await self._run_once(call)
            except SparkLost as error:
                _log.warning("step '%s' has lost its Spark: %s", call.step, error.message)
                lost = error
        return _refused(lost)

    async def _run_once(self, call: Call) -> Outcome:
        """Raises SparkLost."""
        folder = await in_thread(_own_folder, call.scratch)
        reading = Reading(call, self._means, folder)
        try:
            return await self._run(call, reading)
        except SparkLost:
            raise
        except Refused as error:
            return error.outcome
        except NoetlError as error:
            return _refused(error)
        finally:
            await in_thread(reading.ends.close)
            await in_thread(shutil.rmtree, folder, ignore_errors=True)

    async def close(self) -> None:
        """Nothing to let go of: the session belongs to the process."""

    async def _run(self, call: Call, reading: Reading) -> Outcome:
        asked = call.fields.get("options") or {}
        if not isinstance(asked, Mapping):
            raise InvalidInput("options must be a mapping", hint="options: {spark.sql.shuffle.partitions: 8}")
        if call.fields.get("sql") is not None and call.fields.get("code") is not None:
            raise InvalidInput("a spark task has both sql and code", hint="remove one")
        conf, sessions = self._conf({**call.session, **asked}), self._sessions()
        sessions.prepare(conf)  # it starts while the inputs are looked for
        target = target_of(call, self._means)
        bucket = await open_bucket(target, reading) if target.kind == "objects" else None
        if bucket is not None and (there := await already_there(bucket, target)) is not None:
            return ok(await self._said(call, target, there, reading.skipped))
        task = await self._task(call, reading, target)
        names = frozenset() if task.code is None else await in_thread(names_used, task.code, call.directory)
        session = await sessions.get(
            conf, modules=(call.directory,) if names else (), names=names, place=self._place(call)
        )
        printed = Printed()

        def work() -> Done:
            with capture(printed):
                return run(session, task)

        try:
            done = await run_job(session, f"noetl-{call.execution_id}-{call.step}", work,
                                 description=f"{call.step}: {call.task}")  # fmt: skip
        except asyncio.CancelledError:
            raise
        except NoetlError as error:
            return _with_logs(_refused(error), printed)
        except Exception as error:
            if await asyncio.to_thread(_is_loss, error) and await sessions.is_lost(session):
                raise SparkLost("Spark's Java process ended in the middle of the task") from error
            return _with_logs(await asyncio.to_thread(blame, error, call, task), printed)
        finally:
            await sessions.release(session)
        if bucket is not None:
            done = await publish(bucket, target, done)
        return _with_logs(ok(await self._said(call, target, done, reading.skipped)), printed)

    def _place(self, call: Call) -> Place:
        """What the `noetl` format reads in this task: the task's own project."""
        means = self._means
        return Place(
            home=str(means.datasets.parent), directory=str(call.directory), tenant=means.tenant, project=means.project
        )

    async def _task(self, call: Call, reading: Reading, target: Target) -> Task:
        fields = call.fields
        inputs = fields.get("inputs") or {}
        if not isinstance(inputs, Mapping):
            raise InvalidInput("inputs must be a mapping of names to sources")
        frames: dict[str, Frame] = {}
        for name, said in inputs.items():
            frames[name] = await _opened(name, said, reading)
        parameters: Json = {}
        for name, value in call.input.items():
            if isinstance(value, TableValue | Rows):
                frames[name] = await _opened(name, value, reading)
            else:
                parameters[name] = plain(value)
        place = place_of(reading.auth(target.auth, "output")) if target.kind == "postgres" else None
        return Task(
            name=f"{call.step}.{call.task}",
            frames=frames,
            parameters=parameters,
            sql=None if fields.get("sql") is None else str(fields["sql"]).strip().rstrip(";"),
            sql_line=_lines_before(str(fields.get("sql") or "")),
            code=None if fields.get("code") is None else str(fields["code"]),
            expectations=expectations_of(fields.get("expect")),
            target=target,
            partitions=_count(fields.get("partitions")),
            by=_names(fields.get("by")),
            place=place,
            folder=reading.folder,
            effect_key=call.effect_key,
            directory=call.directory,
            masked=call.masked,
        )

    async def _said(self, call: Call, target: Target, done: Done, skipped: list[str]) -> Json:
        """The result: where the rows are, how many, the first of them, what was checked and what was written."""
        tiers = self._means.tiers
        ref: Json | None = None
        size = 0 if done.written is None else done.written.bytes
        listing: Json | None = None
        if done.folder is not None:
            ref, size = await keep(done.folder, call.step, tiers)
        elif done.written is not None and target.kind != "postgres":
            path = str(target.path) if target.kind == "files" else f"{target.uri}/"
            ref = {"kind": "result_ref", "ref": target.uri, "form": "files", "path": path,
                   "format": target.form, "rows": done.rows}  # fmt: skip
            if done.written.is_long:
                listing = await keep_json([msgspec.to_builtins(file) for file in done.written.files], tiers)
        result: Json = {
            "ref": ref,
            "rows": done.rows,
            "bytes": size,
            "preview": done.preview,
            "columns": done.columns,
            "expect": done.expect,
            "written": None if done.written is None else done.written.said(listing),
            "plan": None if done.plan is None else await keep_text(_masked(done.plan, call), tiers),
        }
        if skipped:
            for reason in skipped:
                _log.warning("step '%s' left something out: %s", call.step, reason)
            result["skipped"] = skipped
        return result


def _is_loss(error: Exception) -> bool:
    """Whether it may be that Java has gone: it was asked and has not answered, not even with an exception.

    PySpark turns such a silence into an error of its own in some places: a schema then "cannot be parsed".
    """
    return any(_is_silence(one) for one in _behind(error)) or is_loss(explain(error))


def _is_silence(error: BaseException) -> bool:
    return type(error).__module__.startswith("py4j.") and getattr(error, "java_exception", None) is None


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised instead of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def _opened(name: str, said: Any, reading: Reading) -> Frame:
    try:
        return await open_source(said, reading)
    except NoetlError as error:
        error.args = (f"input '{name}': {error.message}",)
        error.message = error.args[0]
        raise


def _masked(plan: str, call: Call) -> str:
    """A plan has the values that a query was rendered with. It is not part of the report, which others look after."""
    return plan if call.masked is None else str(call.masked(plan))


def _own_folder(scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="spark-", dir=scratch.resolve()))


def _count(value: Any) -> int | None:
    if value in (None, ""):
        return None
    if not str(value).isdecimal() or int(value) == 0:
        raise InvalidInput(f"partitions must be a whole number above 0, not '{value}'")
    return int(value)


def _lines_before(text: str) -> int:
    """The line, from 1, in which a text really begins."""
    return 1 + text[: len(text) - len(text.lstrip())].count("\n")


def _names(value: Any) -> tuple[str, ...]:
    return () if not value else (value,) if isinstance(value, str) else tuple(map(str, value))


def _with_logs(outcome: Outcome, printed: Printed) -> Outcome:
    return msgspec.structs.replace(outcome, logs=printed.text()) if printed.total else outcome


def _refused(error: NoetlError) -> Outcome:
    """The outcome of what we ourselves could not do, or would not."""
    if isinstance(error, ExpectationFailed):
        return failed("schema", "EXPECTATION_FAILED", str(error), expect=error.said)
    known: tuple[tuple[type[NoetlError], str, str], ...] = (
        (SparkLost, "connection", "SPARK_LOST"),
        (SparkUnavailable, "unknown", "KIND_UNAVAILABLE"),
        (SettingsDiffer, "schema", "SPARK_SETTINGS_DIFFER"),
        (NotFound, "not_found", "INPUT_NOT_FOUND"),
        (StorageFull, "storage_quota", "STORAGE_FULL"),
        (Unavailable, "connection", "SOURCE_UNAVAILABLE"),
        (InvalidInput, "schema", "INPUT_INVALID"),
    )
    for group, kind, code in known:
        if isinstance(error, group):
            return failed(kind, code, str(error))
    return failed("unknown", "SPARK_FAILED", str(error))
