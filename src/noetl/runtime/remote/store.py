"""Whether a worker and its server keep payloads in the same store."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

from noetl.runtime.stores import is_on_this_disk
from noetl.settings import Settings

__all__ = ["store_name"]


def store_name(settings: Settings, home: Path) -> str:
    """A name that two processes have in common only if they have the store in common. It does not tell where that is.

    A directory is a store for those on its machine only.
    """
    place = settings.payloads.url or str(home.resolve())
    if is_on_this_disk(settings):
        place = f"{socket.gethostname()}:{place}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]
