"""Business objects: rows for whatever things of the user's domain events say they are about."""

from __future__ import annotations

from typing import Any

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope, Json
from noetl.kernel.fold.rows import BusinessObjectRow
from noetl.kernel.fold.state import State

__all__ = ["apply_object", "object_key"]


def object_key(event: Envelope) -> str | None:
    """`<type>/<id>` of the object an event names, as its aggregate or in its payload or meta."""
    named = _named(event)
    if named is not None:
        return f"{_escaped(named['type'])}/{named['id']}"
    return event.aggregate_id if event.aggregate_type == "business_object" else None


def _escaped(object_type: str) -> str:
    return object_type.replace("%", "%25").replace("/", "%2F")


def apply_object(state: State, event: Envelope, key: str) -> None:
    """Record the event in the object's row; of two writers the later event wins, in any order of reading."""
    row: BusinessObjectRow = state.surfaces["business_objects"].edit(key)
    row.event_count += 1
    row.object_type = key.partition("/")[0]
    if row.first_event_id is None or event.event_id < row.first_event_id:
        row.first_event_id, row.first_seen = event.event_id, event.event_time
    if event.event_id > row.last_event_id:
        row.last_event_id, row.last_seen = event.event_id, event.event_time
    if event.payload_ref is not None:
        row.payload_refs += 1
        if _newer(row, "payload", event):
            row.latest_payload = event.payload_ref.sha256
    said = _named(event) or event.payload
    _facts(row, said, event)
    for name, value in _attributes(said, event).items():
        if _newer(row, f"attributes.{name}", event):
            row.attributes[name] = value


def _facts(row: BusinessObjectRow, said: Json, event: Envelope) -> None:
    status, version = said.get("status", event.status), said.get("version")
    if isinstance(status, str) and _newer(row, "status", event):
        row.status = status
    if isinstance(version, int) and _newer(row, "version", event):
        row.version = version
    deleted = said.get("deleted", event.event_type.endswith(".deleted") or None)
    if deleted is not None and _newer(row, "deleted", event):
        row.deleted = bool(deleted)


def _attributes(said: Json, event: Envelope) -> dict[str, Any]:
    attributes = said.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise InvalidEvent("business_object.attributes", "must be a mapping", event_id=event.event_id)
    return attributes


def _newer(row: BusinessObjectRow, name: str, event: Envelope) -> bool:
    if event.event_id <= row.set_by.get(name, -1):
        return False
    row.set_by[name] = event.event_id
    return True


def _named(event: Envelope) -> Json | None:
    named = event.payload.get("business_object") or event.meta.get("business_object")
    if named is None:
        return None
    if not isinstance(named, dict) or not all(isinstance(named.get(name), str) for name in ("type", "id")):
        raise InvalidEvent("business_object", "must be a mapping with text 'type' and 'id'", event_id=event.event_id)
    return named
