"""Where the log was at which time, noted now and then.

A fabric forgets by age. An event's own times do not say when it was committed here: an imported log brings older ones.
So whoever has to know from which position on everything is young enough keeps a few notes.
"""

from __future__ import annotations

import msgspec

from noetl.errors import Conflict
from noetl.ports.kv import NEW, Kv

__all__ = ["Marks"]

_KEY = "fabric/marks"
_NOTES = 100
_SECOND = 1_000_000
_decoder = msgspec.json.Decoder(list[tuple[int, int]])


class Marks:
    """At most about a hundred notes of a time and a position, over as long as the fabric keeps events."""

    def __init__(self, kv: Kv, *, keep_seconds: float) -> None:
        self._kv = kv
        self._keep = int(keep_seconds * _SECOND)

    async def note(self, now: int, position: int) -> None:
        """The log ends at this position now. Somebody else who notes at the same time will do as well."""
        entry = await self._kv.get(_KEY)
        marks = _read(entry.value if entry else None)
        if marks and now - marks[-1][0] < self._keep // _NOTES:
            return
        old = [mark for mark in marks if mark[0] <= now - self._keep]
        value = msgspec.json.encode([*old[-1:], *marks[len(old) :], (now, position)])
        try:
            await self._kv.put(_KEY, value, expected=entry.revision if entry else NEW)
        except Conflict:
            return

    async def floor(self, now: int) -> int:
        """A position at or below which everything is older than the fabric keeps; 0 while nobody knows."""
        entry = await self._kv.get(_KEY)
        return max((at for time, at in _read(entry.value if entry else None) if time <= now - self._keep), default=0)


def _read(value: bytes | None) -> list[tuple[int, int]]:
    """The notes; what cannot be read is as good as none."""
    try:
        return _decoder.decode(value or b"[]")
    except msgspec.MsgspecError:
        return []
