"""What is counted of the frames of a stage."""

from __future__ import annotations

import time
from collections.abc import Sequence

from noetl.kernel.event import Envelope
from noetl.observe import metrics

__all__ = ["FrameMeter"]

_OUTCOMES = ("ok", "error", "break", "skipped")
_ENDS = frozenset({"committed", "failed", "abandoned"})


class FrameMeter:
    """Counts the frames of one stage by what happens to them, and takes the time of each from slot to slot."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._began: dict[int, float] = {}

    def note(self, events: Sequence[Envelope]) -> None:
        """Events of the stage have been written."""
        now = time.perf_counter()
        for event in events:
            aggregate, _, what = event.event_type.partition(".")
            if aggregate != "frame":
                continue
            metrics.count("noetl_frames_total", what)
            frame = event.frame_id or 0
            if what == "dispatched":
                self._began[frame] = now
            elif what in _ENDS and (began := self._began.pop(frame, None)) is not None:
                metrics.observe("noetl_frame_seconds", now - began, self._kind)
            if what == "committed":
                for outcome in _OUTCOMES:  # and no others: each would be a series
                    metrics.count("noetl_frame_rows_total", outcome, amount=event.payload["outcomes"].get(outcome, 0))
