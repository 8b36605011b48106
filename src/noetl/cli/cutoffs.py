"""Moments of a log as a person writes them: a position, an event, a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.errors import InvalidInput
from noetl.kernel.ids import MAX_ID

if TYPE_CHECKING:
    from noetl.replay.service import Cutoff

__all__ = ["cutoff_of", "moment_of"]


def cutoff_of(at_event: str | None, at_position: int | None, at_time: str | None) -> Cutoff:
    """The cutoff that `--at-event`, `--at-position` or `--at-time` asks for; at most one of them."""
    from noetl.kernel.time import parse_time
    from noetl.replay.service import Cutoff

    given = [name for name, value in (("--at-event", at_event), ("--at-position", at_position), ("--at-time", at_time))
             if value is not None]  # fmt: skip
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} exclude each other", hint="ask for one moment")
    if at_event is not None and not (at_event.isdecimal() and int(at_event) <= MAX_ID):
        raise InvalidInput(f"'{at_event}' is not an event id", hint="ids are decimal numbers; see noetl events")
    return Cutoff(
        event_id=None if at_event is None else int(at_event),
        position=at_position,
        time=None if at_time is None else parse_time(at_time),
    )


def moment_of(text: str) -> Cutoff:
    """A moment in one word: `120` is a position, `event:318…` an event, anything else a time."""
    if text.isdecimal():
        return cutoff_of(None, int(text), None)
    if text.startswith("event:"):
        return cutoff_of(text.removeprefix("event:"), None, None)
    return cutoff_of(None, None, text)
