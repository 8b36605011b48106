"""How long events stay in the ledger once an archive has them."""

from __future__ import annotations

import msgspec

from noetl.units import Seconds

__all__ = ["RetentionSettings"]


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When archived events may leave the ledger."""

    min_age: Seconds = Seconds(30 * 24 * 3600.0)
    """How long ago the last event of an execution must have been."""
    every: Seconds | None = None
    """How often the server that leads takes out what may go; without it, none does."""
