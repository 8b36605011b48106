"""The trace that an execution belongs to: recorded with its beginning, and carried along by all that it does.

Its own span is told when it has ended, by whoever writes that down: no process lives as long as an execution may. What
it is called is decided at the beginning, so that everything in between can name it as its parent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from noetl.engine.fact import Fact
from noetl.kernel.event import Envelope, Json
from noetl.kernel.time import parse_time
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.observe import traces
from noetl.observe.traces import TraceContext

__all__ = ["Trace", "frame_spans", "place_of", "trace_of", "with_trace"]

_ASKS = frozenset({"command.issued", "command.resumed", "command.abandoned"})
"""Events that travel to workers, and the trace with them."""


class Trace(NamedTuple):
    """Where an execution is in a trace."""

    asked: TraceContext
    """The place that it was asked for from; its own, if the trace begins with it."""
    span_id: str | None
    """What its own span is called; None where nobody records one."""
    began: int = 0

    @classmethod
    def begin(cls, carrier: Mapping[str, str]) -> Trace | None:
        """The trace of an execution that is about to start: the caller's, else a new one if that would be recorded."""
        asked = traces.read(carrier) if carrier else None
        if asked is not None:
            return cls(asked, secrets.token_hex(8) if traces.is_installed() else None)
        own = traces.begin()
        return None if own is None else cls(own, own.span_id)

    @property
    def context(self) -> TraceContext:
        """The place from which it asks for other things."""
        return self.asked if self.span_id is None else self.asked._replace(span_id=self.span_id)

    def recorded(self) -> Json:
        """As its first event has it."""
        own = {} if self.span_id is None else {"span_id": self.span_id}
        return {**self.asked.carried(), **own}

    def followed(self, events: Sequence[Envelope], path: str) -> Trace:
        """The same after these events; if one of them ends the execution, its span is told."""
        first, last = events[0], next((one for one in events if canonical_type(one.event_type) in TERMINAL_TYPES), None)
        begun = self._replace(began=parse_time(first.event_time)) if first.stream_version == 1 else self
        if last is not None and self.span_id is not None:
            _tell(begun, last, path)
        return begun


def place_of(trace: Trace | None) -> TraceContext | None:
    """The place from which an execution asks for other things; None for one that is in no trace."""
    return None if trace is None else trace.context


def trace_of(first: Envelope) -> Trace | None:
    """The trace that the first event of an execution tells of."""
    said = first.meta.get("trace") or {}
    asked = traces.read(said)
    return None if asked is None else Trace(asked, said.get("span_id"), parse_time(first.event_time))


def with_trace(fact: Fact, trace: Trace) -> Json:
    """What an event of a traced execution says beside its payload."""
    if fact.event_type == "playbook.initialized":
        return {**fact.meta, "trace": trace.recorded()}
    if fact.event_type in _ASKS:
        return {**fact.meta, "trace": trace.context.carried()}
    return fact.meta


def frame_spans(
    place: TraceContext | None, on_events: Callable[[Sequence[Envelope]], None]
) -> Callable[[Sequence[Envelope]], None]:
    """Have the frames of a stage told as spans, each when it is over; wherever its rows were worked on."""
    if place is None or not traces.is_installed():
        return on_events
    began: dict[int, int] = {}

    def note(events: Sequence[Envelope]) -> None:
        on_events(events)
        for event in events:
            frame = event.frame_id or 0
            match event.event_type:
                case "frame.dispatched":
                    began[frame] = parse_time(event.event_time)
                case "frame.committed" | "frame.failed" | "frame.abandoned":
                    ended = parse_time(event.event_time)
                    outcome = event.event_type.partition(".")[2]
                    traces.past(
                        "noetl.frame", place, began.pop(frame, ended), ended,
                        {**_about(event), "noetl.attempt": event.attempt or 1},
                        error=None if outcome == "committed" else outcome,
                    )  # fmt: skip

    return note


def _tell(trace: Trace, event: Envelope, path: str) -> None:
    """The span of an execution that has ended with this event."""
    status = TERMINAL_TYPES[canonical_type(event.event_type)]
    traces.past(
        "noetl.execution",
        None if trace.span_id == trace.asked.span_id else trace.asked,
        trace.began,
        parse_time(event.event_time),
        {**_about(event), "noetl.path": path, "noetl.status": status},
        own=trace.context,
        error=None if status == "COMPLETED" else status,
    )


def _about(event: Envelope) -> dict[str, str | int]:
    return {
        "noetl.tenant_id": event.tenant_id,
        "noetl.execution_id": str(event.execution_id),
        **({} if event.node_name is None else {"noetl.step": event.node_name}),
    }
