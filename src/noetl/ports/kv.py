"""Kv: small values that processes share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

__all__ = ["NEW", "Entry", "Kv", "changes_between"]

NEW = 0
"""As the expected revision: the key must have no value."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its value, or None for one that is gone. `revision` grows with every change of any key."""

    key: str
    value: bytes | None
    revision: int


class Kv(Protocol):
    """Circuits, cursors and who leads: values of a few KiB that can be lost and set again, never facts."""

    async def get(self, key: str) -> Entry | None:
        """The value of a key, or None when it has none or its time is up."""
        ...

    async def put(self, key: str, value: bytes, *, expected: int | None = None, seconds: float | None = None) -> int:
        """Set a value and return its revision; with `seconds` it is gone after that time.

        With `expected` it is set only if the key's revision is that one, or, for `NEW`, if it has no value.
        Raises Conflict if somebody was faster.
        """
        ...

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Take a value away; False if there was none. Raises Conflict as `put` does."""
        ...

    async def list(self, prefix: str = "") -> Sequence[Entry]:
        """Every value whose key begins with `prefix`, in order of key."""
        ...

    def watch(self, prefix: str = "") -> AsyncIterator[Entry]:
        """The values there are, in order of key, and then every change, for as long as the caller listens.

        A value that is gone comes as an entry without one. Of changes in quick succession only the last may come.
        """
        ...


def changes_between(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[Entry]:
    """What a watcher that looks now and then is told between two looks."""
    changed = [entry for key, entry in after.items() if key not in before or before[key].revision != entry.revision]
    gone = [Entry(key=key, value=None, revision=entry.revision) for key, entry in before.items() if key not in after]
    return changed + gone
