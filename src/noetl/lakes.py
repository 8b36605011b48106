"""Where the copy of all events is kept that questions about all of them are asked of."""

from __future__ import annotations

import msgspec

from noetl.units import Seconds

__all__ = ["LakeSettings"]


class LakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The event lake."""

    path: str | None = None
    """Its directory, by default `lake` in the home; a relative one counts from the working directory."""
    grace: Seconds = Seconds(24 * 3600.0)
    """How long a file that is no part of the lake any more stays for those who still read it."""
