"""What went wrong in user code, as the error that the task reports."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from noetl.tools.python.worker.body import FILE_NAME
from noetl.tools.python.worker.values import NotSerialisable

__all__ = ["describe"]

_KINDS = {
    "ConnectionError": "connection",
    "TimeoutError": "timeout",
    "JSONDecodeError": "parse",
    "KeyError": "schema",
    "IndexError": "schema",
    "AttributeError": "schema",
    "TypeError": "schema",
}
_MAX_MESSAGE = 4_000
_MAX_TRACEBACK = 16_000
_MAX_NAMES = 40
_MAX_NAME = 60


def describe(error: BaseException, source: str) -> dict[str, Any]:
    """A reply: the error, and the exception with its traceback."""
    if isinstance(error, NotSerialisable):
        return {"error": {"kind": "schema", "code": "RESULT_NOT_SERIALISABLE", "message": _clean(str(error))}}
    name = type(error).__name__
    found: dict[str, Any] = {
        "kind": _kind(error),
        "code": f"PY_{name}",
        "message": _bounded(_message(error), _MAX_MESSAGE),
    }
    if type(row := getattr(error, "row", None)) is int:
        found["row"] = row  # code that runs for a whole frame says which of its rows is at fault
    frame = _own_frame(error)
    found |= _place(error, frame)
    py: dict[str, Any] = {"exception": name, "traceback": _traceback(error, source)}
    if frame is not None:
        py["locals"] = _names(frame)
    reply: dict[str, Any] = {"error": found, "py": py}
    if isinstance(error, MemoryError):
        reply["retire"] = True
    return reply


def _kind(error: BaseException) -> str:
    """By the name of the class or of one it derives from: libraries have a ConnectionError of their own."""
    return next((_KINDS[c.__name__] for c in type(error).__mro__ if c.__name__ in _KINDS), "transform")


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as unprintable:  # the exception is the user's, and so is its text
        return f"{type(error).__name__}, whose text cannot be had: {type(unprintable).__name__}"
    if isinstance(error, SyntaxError):
        text = error.msg
    if isinstance(error, KeyError):
        return f"KeyError: {text}"
    return text or type(error).__name__


def _own_frame(error: BaseException) -> TracebackType | None:
    """The innermost place in the code of the task."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            found = trace
        trace = trace.tb_next
    return found


def _place(error: BaseException, frame: TracebackType | None) -> dict[str, int]:
    """The line that was being run and, where it is known, which columns of it. All count from 1."""
    if isinstance(error, SyntaxError) and error.filename == FILE_NAME:
        line, column, last_line, end = error.lineno, error.offset, error.end_lineno, error.end_offset
    elif frame is not None:
        line = frame.tb_lineno
        positions = list(frame.tb_frame.f_code.co_positions())
        _, last_line, start, stop = positions[frame.tb_lasti // 2]
        column, end = (None if start is None else start + 1), (None if stop is None else stop + 1)
    else:
        return {}
    place = {} if line is None else {"line": line}
    if column and end and line == last_line and end > column:
        place |= {"column": column, "end_column": end}
    return place


def _names(frame: TracebackType) -> list[str]:
    """What was there when it happened. Names only: values may be secret, and may be large."""
    names = [name for name in frame.tb_frame.f_locals if not name.startswith("__")]
    return sorted(_clean(name[:_MAX_NAME]) for name in names[:_MAX_NAMES])


def _traceback(error: BaseException, source: str) -> str:
    import linecache
    import traceback

    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)
    lines = traceback.format_exception(type(error), error, _from_code(error.__traceback__))
    return _bounded("".join(lines), _MAX_TRACEBACK)


def _from_code(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames that led to the user's code."""
    while trace is not None and trace.tb_frame.f_code.co_filename != FILE_NAME:
        trace = trace.tb_next
    return trace


def _bounded(text: str, limit: int) -> str:
    text = _clean(text)
    return text if len(text) <= limit else f"{text[: limit // 2]}\n...\n{text[-limit // 2 :]}"


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
