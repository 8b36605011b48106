"""What has become of frames, in a few bytes each: a stage may have very many, and most of them have ended."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque

from noetl.data.frame.state import FrameState

__all__ = ["Claims", "Register"]

_REMEMBERED = 1024
"""Claims of a slot that are known after their frames have ended. A slot asks again for its last one only."""


class Register:
    """All frames of a stage, and the event that ended each."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._terminals = array("q")

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, frame_id: int) -> None:
        """A frame is new. Ids are those of events of one stream, so they grow."""
        assert not self._ids or frame_id > self._ids[-1], "frames are met in the order of their ids"
        self._ids.append(frame_id)
        self._terminals.append(0)

    def end(self, frame_id: int, terminal: int) -> None:
        """A frame has ended by an event."""
        self._terminals[self._find(frame_id)] = terminal

    def has(self, frame_id: int) -> bool:
        """Whether there is such a frame."""
        place = self._find(frame_id)
        return place < len(self._ids) and self._ids[place] == frame_id

    def terminal(self, frame_id: int) -> int:
        """The event that has ended a frame; 0 for one that has not ended, or is none."""
        return self._terminals[self._find(frame_id)] if self.has(frame_id) else 0

    def _find(self, frame_id: int) -> int:
        return bisect_left(self._ids, frame_id)


class Claims:
    """Which claims of a cursor have become frames, so that none becomes two."""

    def __init__(self) -> None:
        self._frames: dict[str, FrameState | None] = {}
        self._ended: dict[int, deque[str]] = {}

    def add(self, frame: FrameState) -> None:
        """A claim has become a frame."""
        self._frames[frame.claim_id] = frame

    def end(self, frame: FrameState) -> None:
        """The frame of a claim has ended; that it was one is known for a good while."""
        if frame.claim_id not in self._frames:
            return
        self._frames[frame.claim_id] = None
        ended = self._ended.setdefault(frame.slot, deque())
        ended.append(frame.claim_id)
        if len(ended) > _REMEMBERED:
            del self._frames[ended.popleft()]

    def knows(self, claim_id: str) -> bool:
        """Whether a claim has become a frame."""
        return bool(claim_id) and claim_id in self._frames

    def find(self, claim_id: str) -> FrameState | None:
        """The frame of a claim; None if that has ended."""
        return self._frames.get(claim_id)

    def clear(self) -> None:
        """Forget all of them."""
        self._frames.clear()
        self._ended.clear()
