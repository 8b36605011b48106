"""What went wrong in Spark, for the person who wrote the query or the code.

Spark tells everything at once: the user's mistake, its own frames, a Java stack and a query plan. The user gets what
is about their code; the rest is for the log.
"""

from __future__ import annotations

import re
import traceback
from typing import NamedTuple

__all__ = ["Explained", "explain"]

_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")
_POSITION = re.compile(r"\.?; line (\d+) pos (\d+)$")
_LAST_FAILURE = re.compile(
    r"most recent failure: Lost task .+? \(TID \d+\) \((.+?)(?: executor \S+)?\): (.+)", re.DOTALL
)
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "([^"]+)", line \d+')
# Frames between the user's code and the code that calls it, on either side.
_OURS = re.compile(r"/(pyspark|py4j|noetl)(\.zip)?/|/pyspark\.zip/|/(concurrent/futures|asyncio|threading)\b")
_CAUSED_BY = re.compile(r"^Caused by: (?:[\w$]+\.)+[\w$]+: (.+)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z_$][\w$]*\.)+([A-Z]\w*): ")
_MOST = 4000


class Explained(NamedTuple):
    """What a person reads, and what the log keeps."""

    message: str
    detail: str


def explain(error: BaseException) -> Explained:
    """The cause of a failed Spark call in the user's terms, and everything that Java said about it."""
    java, said = _java_stack(error), _said(error)
    detail = java or "".join(traceback.format_exception(error))
    if _TRACEBACK in said:
        return Explained(_python(said), detail)
    if _TRACEBACK in java:
        return Explained(_python(java), detail)
    if java or _is_spark(error):
        return Explained(_cut(_sentence(said, java)), detail)
    return Explained(_cut(_own(error)), detail)


def _said(error: BaseException) -> str:
    """The description, without the stack that `str` may add to it."""
    description = getattr(error, "_desc", None)  # of what PySpark has caught from Java
    return description if isinstance(description, str) else str(error)


def _java_stack(error: BaseException) -> str:
    """The Java side of an error: PySpark has it as text, Py4J must ask for it."""
    found = getattr(error, "_stackTrace", None)
    if isinstance(found, str):
        return found
    if getattr(error, "java_exception", None) is not None:
        try:
            return str(error)
        except Exception:  # asking needs the JVM, which may be what has gone
            return f"{type(error).__name__}: the JVM could not be asked"
    return ""


def _is_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _python(text: str) -> str:
    """The last traceback in a text, without the frames that are not the user's."""
    body = text[text.rindex(_TRACEBACK) :].splitlines()
    kept: list[str] = []
    hidden = False
    for number, line in enumerate(body[1:], start=1):
        if frame := _FRAME.match(line):
            hidden = _OURS.search(frame[1]) is not None
            if hidden:
                continue
        elif line and not line.startswith(" "):
            return _cut("\n".join(_headed(kept) + _exception(body[number:])))
        if not hidden:
            kept.append(line)
    return _cut("\n".join(_headed(kept)))


def _headed(frames: list[str]) -> list[str]:
    return [_TRACEBACK, *frames] if frames else []


def _exception(lines: list[str]) -> list[str]:
    """The lines of the exception itself, up to where Java goes on."""
    end = next(
        (at for at, line in enumerate(lines) if line.startswith(("\tat ", "Driver stacktrace", "Caused by:"))),
        len(lines),
    )
    return [_SQLSTATE.sub("", line).rstrip() for line in lines[:end] if _SQLSTATE.sub("", line).strip()]


def _sentence(said: str, java: str) -> str:
    """The first paragraph of the innermost thing that is worth reading."""
    if said.startswith("An error occurred while calling"):  # Py4J: the exception stands in the next line
        said = said.partition("\n: ")[2] or said
    text = said
    if failure := _LAST_FAILURE.search(text):
        text = failure[2]
    paragraph = re.split(r"\n\s*\n|;\n|\n\tat |\nJVM stacktrace|\nDriver stacktrace", text.strip(), maxsplit=1)[0]
    sentence = _CLASS.sub("", _SQLSTATE.sub("", paragraph).strip()).rstrip("; ")
    sentence = _POSITION.sub(r" (line \1, position \2)", sentence)
    inner = _SQLSTATE.sub("", (_CAUSED_BY.findall(java) or [""])[-1]).strip()
    if inner and inner not in sentence:
        return f"{sentence}\ncaused by: {inner}" if sentence else inner
    return sentence or (java.splitlines() or ["Spark failed"])[0]


def _own(error: BaseException) -> str:
    """An exception of Python code on this side: where in the user's code, and what."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _OURS.search(frame.filename)]
    said = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([_TRACEBACK, *"".join(traceback.format_list(frames)).splitlines(), said]) if frames else said


def _cut(text: str) -> str:
    """The end is where the cause is."""
    return text if len(text) <= _MOST else f"...{text[-_MOST:]}"
