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
    line = _line(error)
    if line is not None:
        found["line"] = line
    reply: dict[str, Any] = {"error": found, "py": {"exception": name, "traceback": _traceback(error, source)}}
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


def _line(error: BaseException) -> int | None:
    """The line of the code that was being run, counted from 1."""
    if isinstance(error, SyntaxError) and error.filename == FILE_NAME:
        return error.lineno
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


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
