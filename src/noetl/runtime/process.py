"""What a process is called where others see it."""

from __future__ import annotations

import os
import socket

__all__ = ["process_name"]


def process_name(role: str) -> str:
    """Its role, its machine and its number there."""
    return f"{role}@{socket.gethostname()}/{os.getpid()}"
