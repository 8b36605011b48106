"""What a person may configure about archives."""

from __future__ import annotations

import msgspec

__all__ = ["ArchiveSettings"]


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where histories are archived, and when."""

    url: str | None = None
    """The store that bundles are kept in, by default a directory in the home; `options` say how it is reached."""
    options: tuple[str, ...] = ()
    on_completion: bool = False
    """Whether an execution is archived when it has ended, with all that it has called."""
    payloads: bool = False
    """Whether a bundle has a copy of every object that its events refer to; otherwise of playbooks only."""
