"""What a worker says while it works and that is no event: nothing follows from it, and nobody keeps it for ever.

An attempt, a wait before the next one, a line that was printed. Whoever wants to know listens: a terminal, a file.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from noetl.tools.processes import printing
from noetl.tools.secrets.redaction import Redactor

if TYPE_CHECKING:
    from noetl.engine.pipeline import RunTask
    from noetl.runtime.worker import Work

__all__ = ["Listener", "Notice", "Printed", "all_of", "heard", "notice_of"]

MOST_TEXT = 1 << 20
"""How much of what one attempt prints is passed on, in bytes."""
MOST_LINES = 10_000
"""And in how many lines: a line costs more than its text."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened on a worker. A log has whole lines in its text, without secrets."""

    tenant_id: str = "default"
    execution_id: int
    command_id: int
    step: str
    task: str
    what: Literal["attempt", "waiting", "log"]
    attempt: int = 1
    attempts: int | None = None
    """How many there may be, where a rule says so."""
    index: int | None = None
    seconds: float = 0.0
    stream: str = "output"
    text: str = ""
    truncated: bool = False
    at: str | None = None
    """When, for what was heard elsewhere; else it is now."""


Listener = Callable[[Notice], None]


def all_of(*listeners: Listener) -> Listener:
    """One listener that tells several."""

    def tell(notice: Notice) -> None:
        for listener in listeners:
            listener(notice)

    return tell


def notice_of(work: Work, asked: RunTask, what: Literal["attempt", "waiting"], seconds: float = 0.0) -> Notice:
    """What a worker says of an attempt. How many there may be is known where one rule says it as a number."""
    most = {rule.attempts for rule in asked.task.rules if rule.do == "retry"}
    limit = next(iter(most)) if len(most) == 1 else None
    return Notice(
        tenant_id=work.tenant,
        execution_id=work.execution_id,
        command_id=work.command_id,
        step=work.step.name,
        task=asked.task.name,
        what=what,
        attempt=asked.attempt,
        attempts=limit if isinstance(limit, int) else None,
        index=work.index,
        seconds=seconds,
    )


@contextlib.contextmanager
def heard(
    work: Work, asked: RunTask, listener: Listener | None, redactor: Redactor | None
) -> Iterator[Callable[[str], None]]:
    """Tell of an attempt, and of what it prints: at once where it can be heard.

    Yields what takes the text that a tool hands over with its outcome; it counts only if nothing was heard before.
    """
    if listener is None:
        yield lambda _: None
        return
    about = notice_of(work, asked, "attempt")
    listener(about)
    printed = Printed(about, listener, redactor)
    token = printing.set(printed.add)
    try:
        yield printed.add_unheard
    finally:
        printing.reset(token)
        printed.end()


class Printed:
    """What one attempt prints, on its way out: whole lines, redacted, and not without end.

    A line is passed on once it is complete, because half a secret is not recognised. For the same reason the line
    in which the limit is reached is dropped, not cut.
    """

    def __init__(self, about: Notice, listener: Listener, redactor: Redactor | None) -> None:
        self._about = about
        self._listener = listener
        self._redactor = redactor
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._partial: dict[str, str] = {}
        self._bytes = self._lines = 0
        self._ended = False

    def add(self, stream: str, chunk: bytes) -> None:
        """Something was printed. What comes after the end, from a thread that was left behind, belongs to nobody."""
        if self._ended or not chunk:
            return
        self._bytes += len(chunk)
        if self._bytes > MOST_TEXT:
            self._stop(stream)
            return
        if stream not in self._decoders:
            self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._partial.get(stream, "") + self._decoders[stream].decode(chunk)
        whole, newline, self._partial[stream] = text.rpartition("\n")
        if newline:
            self._pass_on(stream, whole)

    def add_unheard(self, text: str) -> None:
        """All that was printed, from a tool that says so at the end; one that was heard has said it already."""
        if not self._bytes:
            self.add("output", text.encode("utf-8", "replace"))

    def end(self) -> None:
        """The attempt is over: a last line needs no end of its own."""
        if self._ended:
            return
        for stream, text in self._partial.items():
            if rest := text + self._decoders[stream].decode(b"", final=True):
                self._pass_on(stream, rest)
        self._ended = True

    def _pass_on(self, stream: str, text: str) -> None:
        lines = text.split("\n")
        self._lines += len(lines)
        if self._lines > MOST_LINES:
            self._stop(stream)
            return
        clean = self._redactor.text(text) if self._redactor is not None else text
        self._listener(msgspec.structs.replace(self._about, what="log", stream=stream, text=clean))

    def _stop(self, stream: str) -> None:
        self._ended = True
        self._listener(msgspec.structs.replace(self._about, what="log", stream=stream, truncated=True))
