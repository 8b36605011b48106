"""Merkle roots that grow: the tree of RFC 6962, kept as its O(log n) peaks.

A sparse stream is sealed again and again while it grows. The peaks of the last seal are enough to go
on from, so sealing costs what was added, not what is there.
"""

from __future__ import annotations

import hashlib

__all__ = ["EMPTY_ROOT", "Merkle"]

EMPTY_ROOT = hashlib.sha256(b"").hexdigest()


class Merkle:
    """The Merkle tree over leaves added so far."""

    def __init__(self, count: int = 0, peaks: tuple[str, ...] = ()) -> None:
        if count.bit_count() != len(peaks):
            raise ValueError(f"{count} leaves have {count.bit_count()} peaks, not {len(peaks)}")
        self.count = count
        self._peaks = [bytes.fromhex(peak) for peak in peaks]

    @property
    def peaks(self) -> tuple[str, ...]:
        """The roots of the complete subtrees, largest first: all that is needed to continue."""
        return tuple(peak.hex() for peak in self._peaks)

    def add(self, leaf_hex: str) -> None:
        """Add one leaf, given as the hex digest of what it stands for."""
        node = hashlib.sha256(b"\x00" + bytes.fromhex(leaf_hex)).digest()
        size = self.count
        while size & 1:
            node = hashlib.sha256(b"\x01" + self._peaks.pop() + node).digest()
            size >>= 1
        self._peaks.append(node)
        self.count += 1

    def root(self) -> str:
        """The root over all leaves, as RFC 6962 defines it."""
        if not self._peaks:
            return EMPTY_ROOT
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = hashlib.sha256(b"\x01" + peak + root).digest()
        return root.hex()
