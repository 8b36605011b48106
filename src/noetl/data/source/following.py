"""A stream over the ledger: from which position to which, trigger by trigger.

An offset is `{"position": n, "checksum": c}`: everything up to a position has been read, and the event there has this
checksum. The checksum is how a ledger is recognised when a stream starts again: an old copy that was put in its place,
or another ledger altogether, would give other events for the same positions, and Spark would not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from noetl.data.source.events import Span, spans
from noetl.data.source.log import EventLog, LogSpec, Term, open_log
from noetl.data.source.options import EventOptions
from noetl.errors import Corruption, IntegrityMismatch, InvalidInput

__all__ = ["Following", "Offset"]

_HINT = "restore the ledger that this checkpoint belongs to, or start the stream anew with another checkpoint"


class Offset(TypedDict):
    """How far a stream has come."""

    position: int
    checksum: str | None


class Following:
    """The arithmetic of one stream. It remembers nothing that Spark would have to give back after a restart."""

    def __init__(self, spec: LogSpec, terms: Sequence[Term], options: EventOptions) -> None:
        if options.last is not None:
            raise InvalidInput("a stream has no toPosition: it goes on", hint="leave it out, or read a batch")
        self._spec = spec
        self._terms = tuple(terms)
        self._options = options
        self._until: int | None = None

    def initial(self) -> Offset:
        """Where a stream begins that has no checkpoint yet."""
        with open_log(self._spec) as log:
            head, first = log.head(), self._options.first
            if first is not None and first > head + 1:
                raise InvalidInput(
                    f"fromPosition {first} is after the end of the ledger, which is at {head}",
                    hint="begin at a position that there is, or say latest",
                )
            return _offset(log, head if first is None else first - 1)

    def stop_at_head(self) -> None:
        """Read what there is now, and nothing that comes later."""
        with open_log(self._spec) as log:
            self._until = log.head()

    def latest(self, start: Offset, *, is_limited: bool) -> Offset:
        """How far the next trigger reads. Raises IntegrityMismatch if the ledger is not the one of the start."""
        with open_log(self._spec) as log:
            head = log.head()
            _recognise(log, start, head)
            end = head if self._until is None else max(start["position"], min(head, self._until))
            if is_limited:
                end = self._admitted(log, start["position"], end)
            return start if end == start["position"] else _offset(log, end)

    def head(self) -> Offset:
        """Where the ledger ends, for those who watch how far behind a stream is."""
        with open_log(self._spec) as log:
            return _offset(log, log.head())

    def spans(self, start: Offset, end: Offset) -> list[Span]:
        """The parts of one trigger, which may be one that was planned before a restart."""
        with open_log(self._spec) as log:
            head = log.head()
            for offset in (start, end):
                _recognise(log, offset, head)
            whole = Span(start["position"], end["position"])
            return spans(log, self._terms, whole, self._options.rows_per_partition)

    def _admitted(self, log: EventLog, after: int, end: int) -> int:
        """As far as the limits of a trigger allow."""
        options = self._options
        if options.positions_per_trigger is not None:
            end = min(end, after + options.positions_per_trigger)
        if options.rows_per_trigger is not None:
            end = log.nth(self._terms, after, end, options.rows_per_trigger) or end
        return end


def _offset(log: EventLog, position: int) -> Offset:
    return Offset(position=position, checksum=log.checksum(position) if position else None)


def _recognise(log: EventLog, offset: Offset, head: int) -> None:
    try:
        position, checksum = int(offset["position"]), offset["checksum"]
    except (KeyError, TypeError, ValueError):
        raise Corruption(f"{offset!r} is not an offset of a noetl stream", hint="name another checkpoint") from None
    if position > head:
        raise IntegrityMismatch(
            f"the ledger ends at position {head}, and this stream has read up to {position}: it was put back",
            hint=_HINT,
        )
    if position and log.checksum(position) != checksum:
        raise IntegrityMismatch(
            f"the event at position {position} is not the one that this stream has read: it is another ledger",
            hint=_HINT,
        )
