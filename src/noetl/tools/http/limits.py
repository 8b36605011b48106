"""How much of everything one worker's http tool may use."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Connections and bytes."""

    per_host: int = 32
    """Connections to one host; what comes on top waits."""
    connections: int = 256
    keep_alive: float = 30.0
    """Seconds that an idle connection is kept."""
    in_memory: int = 8 << 20
    """A larger body goes to a file."""
    in_file: int = 8 << 30
    """A larger body is refused."""
