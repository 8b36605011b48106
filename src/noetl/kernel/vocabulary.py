"""The event types this release knows, and the older spellings it still reads."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["KNOWN_TYPES", "TERMINAL_TYPES", "canonical_type"]

TERMINAL_TYPES = {
    "playbook.completed": "COMPLETED",
    "playbook.failed": "FAILED",
    "playbook.cancelled": "CANCELLED",
}

_ALIASES = {
    "playbook.started": "playbook.initialized",
    "execution.cancelled": "playbook.cancelled",
}

_BY_AGGREGATE = {
    "playbook": "initialized completed failed cancelled",
    "workflow": "initialized completed failed",
    "command": "issued claimed started heartbeat completed failed suspended resumed abandoned cancelled "
    "route.selected route.failed",
    "step": "enter exit skipped adopted",
    "call": "done error",
    "ctx": "patched",
    "loop": "opened item done stalled",
    "stage": "opened started closed",
    "frame": "dispatched started heartbeat committed failed abandoned",
    "batch": "accepted processing completed failed",
    "business_object": "created updated deleted",
    "stream": "sealed",
    "catalog": "resource.registered resource.location_added resource.grant_created resource.replica_available "
    "resource.archived resource.deleted_or_expired",
    "subscription": "registered activated paused resumed draining deactivated rate_limited "
    "message.directives_applied message.rejected message.deduplicated message.spooled message.replayed "
    "message.dispatched message.dead_lettered circuit.opened circuit.closed spool.draining spool.recovered",
    "tenant": "created updated suspended resumed deleted",
    "credential": "registered removed rotated",
    "token": "created revoked",
    "schedule": "created changed paused resumed removed fired missed",
    "hold": "placed released",
}

KNOWN_TYPES = frozenset(f"{aggregate}.{name}" for aggregate, names in _BY_AGGREGATE.items() for name in names.split())


@lru_cache(maxsize=1024)
def canonical_type(event_type: str) -> str:
    """The spelling this release uses: `playbook_started` and `execution.cancelled` are read, never written."""
    if event_type.startswith("playbook_"):
        event_type = event_type.replace("_", ".", 1)
    return _ALIASES.get(event_type, event_type)
