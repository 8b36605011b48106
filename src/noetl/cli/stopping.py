"""How a process that serves is told to end."""

from __future__ import annotations

import asyncio
import signal

__all__ = ["asked_to_stop"]


def asked_to_stop() -> asyncio.Event:
    """Set by SIGTERM, or by an interrupt, from now on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
