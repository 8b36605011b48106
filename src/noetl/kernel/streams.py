"""The streams an event may belong to, and which of them are chained.

Dense streams number their events 1, 2, 3 ... and chain them by hash: one writer at a time decides.
Sparse streams take events from many writers at once, number them by event id, and are sealed instead.
"""

from __future__ import annotations

from functools import lru_cache

from noetl.errors import InvalidEvent
from noetl.kernel.ids import MAX_ID

__all__ = ["category_of", "execution_of", "execution_stream", "is_dense", "root_of", "stage_stream", "telemetry_stream"]

_REMEMBERED = 8192  # names are taken apart for every append, and the same few again and again
_EXECUTION_PARTS = 2
_REGISTRY_PARTS = 5
_ID_DIGITS = len(str(MAX_ID))


def execution_stream(execution_id: int) -> str:
    """The stream of an execution's own decisions."""
    return f"execution/{execution_id}"


def stage_stream(execution_id: int, stage_id: int) -> str:
    """The stream of one data stage's frames."""
    return f"execution/{execution_id}/stage/{stage_id}"


def telemetry_stream(execution_id: int) -> str:
    """The stream of heartbeats and other signals that decide nothing."""
    return f"execution/{execution_id}/telemetry"


@lru_cache(_REMEMBERED)
def category_of(stream_id: str) -> str:
    """`execution`, `registry`, `subscription` or `tenant`: which fold gives the events their meaning."""
    parts = stream_id.split("/")
    if not all(parts):
        raise InvalidEvent("stream_id", f"'{stream_id}' has an empty segment")
    head, rest = parts[0], parts[1:]
    if head == "execution" and _is_execution(rest):
        return head
    if head == "registry" and len(parts) >= _REGISTRY_PARTS:
        return head
    if (head == "subscription" and rest) or (head == "tenant" and len(rest) == 1):
        return head
    raise InvalidEvent(
        "stream_id",
        f"'{stream_id}' is not a stream",
        hint="execution/<id>, execution/<id>/stage/<id>, execution/<id>/telemetry, "
        "registry/<tenant>/<project>/<kind>/<path>, tenant/<id> or subscription/<path>",
    )


@lru_cache(_REMEMBERED)
def is_dense(stream_id: str) -> bool:
    """True when the stream is numbered without gaps and hash-chained."""
    if stream_id.startswith("execution/"):
        return stream_id.count("/") == _EXECUTION_PARTS - 1
    return not stream_id.startswith("subscription/")


@lru_cache(_REMEMBERED)
def root_of(stream_id: str) -> str:
    """The stream whose writers may append to this one in the same transaction."""
    if stream_id.startswith("execution/"):
        return "/".join(stream_id.split("/", 2)[:_EXECUTION_PARTS])
    return stream_id


@lru_cache(_REMEMBERED)
def execution_of(stream_id: str) -> int | None:
    """The execution a stream belongs to, or None."""
    return int(stream_id.split("/", 2)[1]) if stream_id.startswith("execution/") else None


def _is_execution(rest: list[str]) -> bool:
    if not rest or not _is_id(rest[0]):
        return False
    tail = rest[1:]
    return not tail or tail == ["telemetry"] or (len(tail) == 2 and tail[0] == "stage" and _is_id(tail[1]))


def _is_id(text: str) -> bool:
    """An id has one spelling: `07`, or digits of another script, would name a second stream of one execution."""
    return len(text) <= _ID_DIGITS and text.isdecimal() and str(int(text)) == text and int(text) <= MAX_ID
