"""Surfaces: sets of rows whose checksum is kept up to date, not recomputed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from noetl.kernel import canonical
from noetl.kernel.chain import MODULUS
from noetl.kernel.fold.rows import Row

__all__ = ["EXECUTION_SURFACES", "RowSum", "Surface", "bundle_of", "checksum_of_rows", "state_checksum"]

EXECUTION_SURFACES = ("execution", "stages", "frames", "commands", "business_objects", "loops")

Key = int | str
R = TypeVar("R", bound=Row)


class Surface(Generic[R]):
    """Rows by key, and the sum of their hashes.

    A changed row is only marked; its hash is taken when somebody asks. So folding a million events into
    ten rows hashes ten rows, and a state that is asked after every event hashes what that event touched.
    `changed` is for whoever stores rows: what was edited since they last emptied it.
    """

    __slots__ = ("_hashes", "_make", "_stale", "_total", "changed", "name", "rows")

    def __init__(self, name: str, make: Callable[[Key], R]) -> None:
        self.name = name
        self.rows: dict[Key, R] = {}
        self.changed: set[Key] = set()
        self._stale: set[Key] = set()
        self._make = make
        self._hashes: dict[Key, int] = {}
        self._total = 0

    def edit(self, key: Key) -> R:
        """The row to change, made if it is new."""
        self.changed.add(key)
        self._stale.add(key)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = self._make(key)
        return row

    def put(self, key: Key, row: R) -> None:
        """Take a row as it is, from a snapshot or a store."""
        self.rows[key] = row
        self._stale.add(key)

    def fill(self, rows: dict[Key, R]) -> None:
        """Take many rows at once, in place of whatever was there."""
        self.rows = rows
        self._stale = set(rows)
        self._hashes = {}
        self._total = 0

    def checksum(self) -> str:
        """sha256 over the surface's name, its row count and the sum of its rows' hashes."""
        for key in self._stale:
            fresh = int.from_bytes(hashlib.sha256(self.rows[key].encoded()).digest(), "big")
            self._total += fresh - self._hashes.get(key, 0)
            self._hashes[key] = fresh
        self._stale.clear()
        self._total %= MODULUS
        return _seal(self.name, len(self._hashes), self._total)


class RowSum:
    """What the rows of a surface come to, one after the other."""

    def __init__(self) -> None:
        self._count = 0
        self._total = 0

    def add(self, row: bytes) -> None:
        """Take in the canonical bytes of one more row."""
        self._total += int.from_bytes(hashlib.sha256(row).digest(), "big")
        self._count += 1

    def checksum(self, name: str) -> str:
        """The checksum of a surface of that name with these rows."""
        return _seal(name, self._count, self._total % MODULUS)


def checksum_of_rows(name: str, rows: Iterable[bytes]) -> str:
    """The checksum of a surface from its rows' canonical bytes alone, as any exporter can give them."""
    total = RowSum()
    for row in rows:
        total.add(row)
    return total.checksum(name)


def bundle_of(surfaces: Mapping[str, Surface[Row]]) -> dict[str, str]:
    """The checksum of every surface, by name."""
    return {name: surface.checksum() for name, surface in surfaces.items()}


def state_checksum(bundle: Mapping[str, str], registry_digest: str) -> str:
    """One digest for the whole state, under the upcasters it was folded with."""
    return hashlib.sha256(canonical.encode({"bundle": dict(bundle), "upcasters": registry_digest})).hexdigest()


def _seal(name: str, count: int, total: int) -> str:
    return hashlib.sha256(f"{name}\0{count}\0{total:064x}".encode()).hexdigest()
