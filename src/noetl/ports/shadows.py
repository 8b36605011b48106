"""Shadow: rows beside those in use, to be compared with them and put in their place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from noetl.ports.projections import ProjectionStore

__all__ = ["Decide", "Drift", "DriftedRow", "Finish", "Shadow"]


class DriftedRow(msgspec.Struct, frozen=True, array_like=True):
    """A row that is not what the log says; `what` is missing, extra or different."""

    tenant_id: str
    root: str
    surface: str
    row_id: str
    what: str


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison has found."""

    rows: int
    """How many rows the log gives."""
    late: int
    """How many roots were not as far as the log."""
    wrong: int
    """How many rows of the others were not what the log says; the first of them are named."""
    first: Sequence[DriftedRow]
    replaced: bool = False
    """Whether the rows of the log are in use now."""


Decide = Callable[[Drift], bool]
"""Whether the rows are to be put in place, given what differs."""
Finish = Callable[[], Awaitable[int]]
"""Folds what the log has got since, and says up to which position projectors claim to have come."""


class Shadow(Protocol):
    """Rows beside, for one process at a time, gone at the end."""

    @property
    def projections(self) -> ProjectionStore:
        """Where whoever fills them saves rows."""
        ...

    async def compare(self, finish: Finish, decide: Decide) -> Drift:
        """Compare while nobody saves; if `decide` says so put the rows in place, all or none.

        Nothing can be saved to the rows in use until this returns.
        """
        ...
