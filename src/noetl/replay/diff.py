"""What changed between two moments, row by row and field by field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from noetl.kernel import canonical
from noetl.kernel.fold import State

__all__ = ["Change", "diff"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A row that was added, removed or changed, with the fields that differ as (before, after)."""

    surface: str
    row: str
    kind: str
    fields: dict[str, tuple[Any, Any]]


def diff(before: State, after: State) -> Iterable[Change]:
    """Every row that differs, surface by surface."""
    for surface in after.surfaces:
        if before.surfaces[surface].checksum() == after.surfaces[surface].checksum():
            continue
        old, new = dict(before.rows(surface)), dict(after.rows(surface))
        for row_id in sorted(old.keys() | new.keys(), key=lambda name: (len(name), name)):
            was, now = old.get(row_id), new.get(row_id)
            if was is not None and now is not None and was.encoded() == now.encoded():
                continue
            kind = "added" if was is None else "removed" if now is None else "changed"
            fields = _fields(was.as_dict() if was else {}, now.as_dict() if now else {})
            yield Change(surface=surface, row=row_id, kind=kind, fields=fields)


def _fields(was: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted(was.keys() | now.keys())
    return {name: (was.get(name), now.get(name)) for name in names if not _same(was.get(name), now.get(name))}


def _same(was: Any, now: Any) -> bool:
    """As a row's bytes see it: 1, 1.0 and true are equal in Python only."""
    return canonical.encode(was) == canonical.encode(now)
