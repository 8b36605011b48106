"""Kills that a run has to survive."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["Kills", "Victims", "killing"]

Victims = Callable[[], list[int]]
"""The processes that may be killed now."""


class Kills:
    """How many there were."""

    def __init__(self) -> None:
        self.count = 0

    def kill_one(self, victims: Victims, choose: random.Random) -> None:
        """Kill one of them, as a machine that fails would: without a word."""
        if pids := victims():
            with suppress(ProcessLookupError):  # it has ended by itself meanwhile
                os.kill(choose.choice(pids), signal.SIGKILL)
                self.count += 1


@contextmanager
def killing(victims: Victims, every: float, seed: int = 0) -> Iterator[Kills]:
    """Kill one of the victims every so many seconds until the work is done."""
    kills, over, choose = Kills(), threading.Event(), random.Random(seed)

    def kill() -> None:
        while not over.wait(every):
            kills.kill_one(victims, choose)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield kills
    finally:
        over.set()
        thread.join()
