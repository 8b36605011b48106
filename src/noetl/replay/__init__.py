"""Replay: what the system knew at any moment, rebuilt from the log, and the proof that it is right.

Nothing here writes to the log or sends a signal: a replay of last year's run must not look like a run.
"""

from noetl.replay.diff import Change, diff
from noetl.replay.service import Cutoff, Rejected, Replayed, Replayer
from noetl.replay.snapshots import read_snapshot, take_snapshot
from noetl.replay.verify import Problem, Verification, Verifier

__all__ = [
    "Change",
    "Cutoff",
    "Problem",
    "Rejected",
    "Replayed",
    "Replayer",
    "Verification",
    "Verifier",
    "diff",
    "read_snapshot",
    "take_snapshot",
]
