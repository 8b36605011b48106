"""What this process and those below it use: seconds of CPU, and memory.

Other processes run beside a benchmark. What they take from it shows in the clock on the wall, hardly in these.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["cpu_seconds", "forget_peak", "peak_bytes"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PROCESSES = Path("/proc")


def cpu_seconds() -> float:
    """Of this process and all below it, with those that have ended and were waited for."""
    facts = dict(filter(None, map(_facts, _PROCESSES.glob("[0-9]*"))))
    found = 0.0
    for process, (_, seconds) in facts.items():
        above = process
        while above in facts and above != os.getpid():
            above = facts[above][0]
        if above == os.getpid():
            found += seconds
    return found


def _facts(process: Path) -> tuple[int, tuple[int, float]] | None:
    """A process with its parent and its seconds; None if it has just ended."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(process.name), (int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)


def forget_peak() -> None:
    """Begin to look anew for the largest memory of this process."""
    (_PROCESSES / "self" / "clear_refs").write_text("5")


def peak_bytes() -> int:
    """The largest memory that this process has had since `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", (_PROCESSES / "self" / "status").read_text())
    assert found is not None
    return int(found[1]) << 10
