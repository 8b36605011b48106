"""Reading a known event's payload: what is there must be of the right kind, or the event is named."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope, Json
from noetl.kernel.ids import MAX_ID

__all__ = ["counts", "mapping", "number", "required", "text", "worker_of"]

T = TypeVar("T")
_ID_DIGITS = len(str(MAX_ID))


def text(event: Envelope, name: str) -> str | None:
    """A text of the payload, or None."""
    return _typed(event, name, str, "text")


def number(event: Envelope, name: str) -> int | None:
    """A whole number of the payload, or None. Ids may also be spelled as decimal text."""
    value = event.payload.get(name)
    if isinstance(value, str) and value.isdecimal() and len(value) <= _ID_DIGITS:
        return int(value)
    return _typed(event, name, int, "a whole number")


def mapping(event: Envelope, name: str) -> Json | None:
    """A mapping of the payload, or None."""
    return _typed(event, name, dict, "a mapping")


def required(event: Envelope, name: str, value: T | None) -> T:
    """The value, which this type of event cannot do without."""
    if value is None:
        raise InvalidEvent(name, f"is missing in a {event.event_type}", event_id=event.event_id)
    return value


def counts(event: Envelope, name: str) -> dict[str, int] | None:
    """A mapping of counters, or None."""
    value = event.payload.get(name)
    if value is None:
        return None
    try:
        return msgspec.convert(value, dict[str, int])
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"payload.{name}", str(error), event_id=event.event_id) from None


def worker_of(event: Envelope) -> str | None:
    """Who did the work, as the event says it."""
    worker = event.meta.get("worker_id") or event.payload.get("worker_id")
    return worker if isinstance(worker, str) else None


def _typed(event: Envelope, name: str, kind: type[T], words: str) -> T | None:
    value: Any = event.payload.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidEvent(f"payload.{name}", f"must be {words}, not {type(value).__name__}", event_id=event.event_id)
    return value
