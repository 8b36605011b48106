"""Traces: one piece of work, followed through every process that has a part in it.

A trace comes in and goes out as W3C `traceparent` and `tracestate`. Where nobody records spans, what came in is handed
on as it came: then a process in between costs nothing, and those on both sides of it still see one trace.
`observe.otel` installs what records.
"""

from __future__ import annotations

import contextvars
import re
import secrets
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Protocol

__all__ = [
    "NOWHERE", "Scope", "Span", "TraceContext", "Tracer", "at", "begin", "current", "install", "is_installed", "past",
    "read", "uninstall", "within",
]  # fmt: skip

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MOST_STATE = 512
_VERSION, _INVALID = "00", "ff"
_SAMPLED = "01"

Value = str | int | float | bool
"""What is said of a span."""


class TraceContext(NamedTuple):
    """A place in a trace: what begins there names it as its parent."""

    trace_id: str
    span_id: str
    flags: str = _SAMPLED
    state: str = ""

    def carried(self) -> dict[str, str]:
        """As it travels: headers of a request, variables of a process, fields of a message."""
        found = {"traceparent": f"{_VERSION}-{self.trace_id}-{self.span_id}-{self.flags}"}
        return {**found, "tracestate": self.state} if self.state else found


class Span(Protocol):
    """Something that has begun."""

    @property
    def context(self) -> TraceContext:
        """What begins inside of it names this as its parent."""
        ...

    def end(self, *, error: str | None = None, at: int | None = None) -> None:
        """It is over, and has failed if there is an `error`; `at` is microseconds, by default now."""
        ...


class Tracer(Protocol):
    """Where spans go."""

    def begin(
        self,
        name: str,
        parent: TraceContext | None,
        attributes: Mapping[str, Value],
        *,
        own: TraceContext | None = None,
        at: int | None = None,
    ) -> Span:
        """Begin a span; `own` is what it has been called before it was recorded."""
        ...


class _Installed:
    tracer: Tracer | None = None


_current: contextvars.ContextVar[TraceContext | None] = contextvars.ContextVar("noetl_trace", default=None)


def install(tracer: Tracer) -> None:
    """Send the spans of this process there from now on."""
    _Installed.tracer = tracer


def uninstall() -> None:
    """Send them nowhere again."""
    _Installed.tracer = None


def is_installed() -> bool:
    """Whether anybody records spans."""
    return _Installed.tracer is not None


def read(carrier: Mapping[str, str]) -> TraceContext | None:
    """The place that headers or fields name. What is not well-formed is no place, and nothing is refused for it."""
    found = _PARENT.fullmatch(carrier.get("traceparent") or "")
    if found is None or found[1] == _INVALID or (found[1] == _VERSION and found[5]):
        return None
    if not found[2].strip("0") or not found[3].strip("0"):
        return None
    state = carrier.get("tracestate") or ""
    return TraceContext(found[2], found[3], found[4], state if _is_state(state) else "")


def begin() -> TraceContext | None:
    """The first place of a new trace; None where nobody would record it."""
    return None if _Installed.tracer is None else TraceContext(secrets.token_hex(16), secrets.token_hex(8))


def current() -> TraceContext | None:
    """Where the running task is."""
    return _current.get()


class Scope:
    """A span around a block of code, inside of which it is the current place."""

    __slots__ = ("_attributes", "_error", "_name", "_parent", "_span", "_token")

    def __init__(self, parent: TraceContext, name: str, attributes: Mapping[str, Value]) -> None:
        self._parent = parent
        self._name = name
        self._attributes = attributes
        self._error: str | None = None
        self._span: Span | None = None

    def __enter__(self) -> Scope:
        """Begin it."""
        tracer = _Installed.tracer
        if tracer is not None:
            self._span = tracer.begin(self._name, self._parent, self._attributes)
        self._token = _current.set(self._parent if self._span is None else self._span.context)
        return self

    def fail(self, error: str) -> None:
        """What was done here has failed, though nothing was raised."""
        self._error = error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        _current.reset(self._token)
        if self._span is not None:
            self._span.end(error=kind.__name__ if kind is not None else self._error)


class _Nowhere(Scope):
    """What is in no trace."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(TraceContext("", ""), "", {})

    def __enter__(self) -> Scope:
        return self

    def fail(self, error: str) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _Place(Scope):
    """A block that is at a place and has no span of its own."""

    __slots__ = ()

    def __enter__(self) -> Scope:
        self._token = _current.set(self._parent)
        return self


NOWHERE: Scope = _Nowhere()
"""A block that is in no trace."""


def within(parent: TraceContext | None, name: str, attributes: Mapping[str, Value] | None = None) -> Scope:
    """A span below a place. What is in no trace gets none, and costs no more than this call."""
    return NOWHERE if parent is None else Scope(parent, name, attributes or {})


def at(place: TraceContext | None) -> Scope:
    """The place itself, for what is done too often to have a span each time."""
    return NOWHERE if place is None else _Place(place, "", {})


def past(
    name: str,
    parent: TraceContext | None,
    began: int,
    ended: int,
    attributes: Mapping[str, Value],
    *,
    own: TraceContext | None = None,
    error: str | None = None,
) -> None:
    """A span that is over, from one moment to another in microseconds: what outlives the processes that work on it."""
    if (tracer := _Installed.tracer) is not None:
        tracer.begin(name, parent, attributes, own=own, at=began).end(error=error, at=max(began, ended))


def _is_state(text: str) -> bool:
    return len(text) <= _MOST_STATE and text.isascii() and text.isprintable()
