"""What a process is called where others see it, and how one settles down that is to run for long."""

from __future__ import annotations

import gc
import os
import socket

__all__ = ["process_name", "settle_down"]


def process_name(role: str) -> str:
    """Its role, its machine and its number there."""
    return f"{role}@{socket.gethostname()}/{os.getpid()}"


def settle_down() -> None:
    """What is there by now stays: to look through it again and again for garbage costs a tenth of every request."""
    gc.collect()
    gc.set_threshold(20_000, 20, 20)
    gc.freeze()
