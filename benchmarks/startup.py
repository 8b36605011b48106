"""How soon the command line answers, against a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.harness import Measurement, alternate

__all__ = ["help_"]


def help_() -> Measurement:
    """`noetl --help` against `python -c pass`."""
    return alternate(
        "help",
        "s",
        lambda _: _seconds([sys.executable, "-m", "noetl", "--help"]),
        lambda _: _seconds([sys.executable, "-c", "pass"]),
        rounds=15,
    )


def _seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun
