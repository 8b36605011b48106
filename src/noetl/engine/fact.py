"""What the engine says happened, before anybody has stamped it."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.kernel.event import Json, PayloadRef

__all__ = ["Fact"]


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event to be. The shell adds who and when; the ledger adds ids.

    A `command_id` or `stage_id` below zero stands for the fact at place `-id - 1` of the same decision.
    """

    event_type: str
    node_name: str | None = None
    payload: Json = {}
    status: str | None = None
    command_id: int | None = None
    stage_id: int | None = None
    aggregate_type: str = "execution"
    aggregate_id: str | None = None
    attempt: int | None = None
    meta: Json = {}
    event_id: int = 0
    large: tuple[str, ...] = ()
    """Keys of the payload that may be too large for an event; the shell stores those that are."""

    payload_ref: PayloadRef | None = None
    """Where a part of the payload is that was stored long before."""

    def value(self, name: str) -> Any:
        """A value of the payload, or None."""
        return self.payload.get(name)
