"""Upcasters: how an event written in an older shape is read in today's.

An upcaster is a pure function registered for one schema and one version; it must raise the version.
The registry's digest is part of every state's checksum, and a snapshot made under another digest is
ignored: the same log read through other glasses is another state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from noetl.errors import InvalidEvent, InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Envelope
from noetl.kernel.vocabulary import KNOWN_TYPES, canonical_type

__all__ = ["CURRENT_VERSIONS", "LEGACY_SCHEMA", "UpcasterRegistry", "default_registry"]

Upcaster = Callable[[Envelope], Envelope]

LEGACY_SCHEMA = "noetl.event"
CURRENT_VERSIONS: Mapping[str, int] = {f"noetl.{name}": 1 for name in sorted(KNOWN_TYPES)} | {LEGACY_SCHEMA: 2}
"""The newest version of each schema this release reads. A schema not listed is an unknown event's: it is counted."""


class UpcasterRegistry:
    """Upcasters by (schema name, from version)."""

    def __init__(self, current: Mapping[str, int] = CURRENT_VERSIONS) -> None:
        self._current = current
        self._steps: dict[tuple[str, int], tuple[str, Upcaster]] = {}

    def register(self, schema_name: str, from_version: int, name: str, upcaster: Upcaster) -> None:
        """Add a step. `name` identifies the transition in the digest; change it when the function changes."""
        if (schema_name, from_version) in self._steps:
            raise InvalidInput(f"schema '{schema_name}' version {from_version} has an upcaster already")
        self._steps[schema_name, from_version] = (name, upcaster)

    def digest(self) -> str:
        """sha256 over the registered transitions, in order."""
        steps = [[schema, version, name] for (schema, version), (name, _) in sorted(self._steps.items())]
        return hashlib.sha256(canonical.encode(steps)).hexdigest()

    def upcast(self, event: Envelope) -> Envelope:
        """The event in today's shape. Raises InvalidEvent where no way leads there."""
        current = self._current.get(event.schema_name)
        if event.schema_version == current or current is None:
            return event
        while event.schema_version != current:
            event = self._step(event, current)
        return event

    def _step(self, event: Envelope, current: int) -> Envelope:
        step = self._steps.get((event.schema_name, event.schema_version))
        if step is None:
            newer = event.schema_version > current
            raise InvalidEvent(
                "schema_version",
                f"'{event.schema_name}' version {event.schema_version} has no upcaster to version {current}",
                event_id=event.event_id,
                hint="the log was written by a newer release: upgrade noetl" if newer else "register an upcaster",
            )
        raised = step[1](event)
        if raised.schema_version <= event.schema_version or raised.event_id != event.event_id:
            raise InvalidInput(f"upcaster '{step[0]}' did not raise the version of event {event.event_id}")
        return raised


def default_registry() -> UpcasterRegistry:
    """The upcasters that ship."""
    registry = UpcasterRegistry()
    registry.register(LEGACY_SCHEMA, 1, "legacy-spelling-1", _respell_legacy)
    return registry


_LEGACY_NAMES = {"row_count": "rows", "worker_slot_id": "slot", "policy": "frame_policy", "loop_event_id": "loop_id"}


def _respell_legacy(event: Envelope) -> Envelope:
    """Events of the untyped schema: older type names, and facts inside `context` under older names."""
    payload = dict(event.payload)
    context: Any = payload.pop("context", None) or payload.pop("payload", None)
    if isinstance(context, dict):
        payload = {**{_LEGACY_NAMES.get(str(name), str(name)): value for name, value in context.items()}, **payload}
    return msgspec.structs.replace(
        event, event_type=canonical_type(event.event_type), payload=payload, schema_version=event.schema_version + 1
    )
