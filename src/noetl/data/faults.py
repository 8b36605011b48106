"""What Spark or the user's code has raised, as the error of a task: in the user's terms, with the place.

`line` and `column`, from 1, are those of the task's `code` or `sql`; whoever shows the error finds the line of the file
by them. What Java said goes to the log.
"""

from __future__ import annotations

import logging
import re
from difflib import get_close_matches
from types import TracebackType
from typing import TYPE_CHECKING

from noetl.data.code import file_of
from noetl.data.session import explain
from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, failed

if TYPE_CHECKING:
    from noetl.data.work import Task

__all__ = ["blame"]

_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?:[\w.]+\.)?(\w+)(?::|$)")
_NO_VIEW = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view ([^\s]+) cannot be found")
_AT = re.compile(r"\(line (\d+), pos (\d+)\)|; line (\d+) pos (\d+)|== SQL \(line (\d+), position (\d+)\) ==")
_OF_A_QUERY = ("AnalysisException", "ParseException")
_log = logging.getLogger(__name__)


def blame(error: Exception, call: Call, task: Task) -> Outcome:
    """The outcome of a task that has raised this."""
    message, detail = explain(error)
    _log.error("step '%s', task '%s' failed in Spark: %s", call.step, call.task, detail)
    name = type(error).__name__
    is_sparks = type(error).__module__.startswith(("pyspark.", "py4j."))
    place = _in_code(error, message, task) if task.sql is None else _in_sql(error, task)
    if name in _OF_A_QUERY:
        return failed("schema", "SPARK_ANALYSIS", _with_views(message, task), **place)
    if _TRACEBACK not in message:
        return failed("transform", "SPARK_FAILED" if is_sparks else f"PY_{name}", message, **place)
    exception = _EXCEPTION.match(_last_line(message))
    code = exception[1] if is_sparks and exception else name
    message = _with_lines(message, task)
    return failed("transform", f"PY_{code}", message, extra={"py": {"exception": code, "traceback": message}}, **place)


def _last_line(traceback: str) -> str:
    """Of the exception, which may have several: the first that stands at the margin after the frames."""
    lines = traceback.strip().splitlines()
    return next((line for line in lines[1:] if line and not line.startswith(" ")), lines[-1])


def _with_views(message: str, task: Task) -> str:
    """Spark says which view is not there; which ones there are, it does not."""
    found = _NO_VIEW.search(message)
    if found is None:
        return message
    name = found[1].replace("`", "")
    views = list(task.frames)
    said = f"the inputs of the task are {', '.join(views)}" if views else "the task has no inputs"
    close = get_close_matches(name, views, n=1)
    hint = f"did you mean '{close[0]}'?" if close else "add it to inputs"
    return f"there is no view or table '{name}': {said} ({hint})"


def _in_sql(error: Exception, task: Task) -> Json:
    """Where in the query, as Spark says it. It counts lines from 1 and, but for one of its forms, columns from 0."""
    found = _AT.search(str(error))
    if found is None:
        return {}
    line, column = [int(number) for number in found.groups() if number is not None]
    return {"line": line + task.sql_line - 1, "column": column + (0 if found[5] else 1)}


def _in_code(error: Exception, message: str, task: Task) -> Json:
    """The innermost line of the task's code that was being run, here or on an executor."""
    file = file_of(task.name)
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        return {"line": error.lineno}
    here = [trace for trace in _frames(error.__traceback__) if trace.tb_frame.f_code.co_filename == file]
    there = re.findall(rf'File "{re.escape(file)}", line (\d+)', message)
    if there:
        return {"line": int(there[-1])}
    return {"line": here[-1].tb_lineno} if here else {}


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _with_lines(message: str, task: Task) -> str:
    """An executor has the code of the task without its text: the lines are put in here."""
    if task.code is None:
        return message
    source = task.code.splitlines()
    frame = re.compile(rf'  File "{re.escape(file_of(task.name))}", line (\d+)')
    lines = message.splitlines()
    shown: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        shown.append(line)
        found = frame.match(line)
        if found and not following.startswith("    ") and int(found[1]) <= len(source):
            shown.append(f"    {source[int(found[1]) - 1].strip()}")
    return "\n".join(shown)
