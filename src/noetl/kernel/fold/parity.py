"""Parity: do two sets of rows tell the same story, and where they do not, in which field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from noetl.kernel import canonical

__all__ = ["Difference", "compare"]

_MISSING = "(absent)"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One place where the live rows and the replayed rows disagree."""

    surface: str
    row: str
    field: str
    live: Any
    replayed: Any

    def __str__(self) -> str:
        return f"{self.surface} row {self.row}, field '{self.field}': live {self.live!r}, replayed {self.replayed!r}"


def compare(
    surface: str, live: Mapping[str, Mapping[str, Any]], replayed: Mapping[str, Mapping[str, Any]]
) -> Iterable[Difference]:
    """Every field that differs, row by row, in order of id."""
    for row in sorted(live.keys() | replayed.keys()):
        if row not in live or row not in replayed:
            there, gone = ("row", _MISSING) if row in live else (_MISSING, "row")
            yield Difference(surface=surface, row=row, field="*", live=there, replayed=gone)
            continue
        for field in sorted(live[row].keys() | replayed[row].keys()):
            if not _same(live[row], replayed[row], field):
                ours, theirs = live[row].get(field, _MISSING), replayed[row].get(field, _MISSING)
                yield Difference(surface=surface, row=row, field=field, live=ours, replayed=theirs)


def _same(live: Mapping[str, Any], replayed: Mapping[str, Any], field: str) -> bool:
    """As the checksum sees it: 1, 1.0 and true are equal in Python but not in a row's bytes."""
    if field not in live or field not in replayed:
        return False
    return canonical.encode(live[field]) == canonical.encode(replayed[field])
