"""The names that a body sees inside a data stage: those of a row, of a frame, of a group, and of a claim.

They are put together once per frame. What a row adds is a small mapping of its own, since a frame may have any number
of rows and most bodies read one field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.kernel.lazy import LazyMapping, composed

__all__ = ["FrameNames", "Window", "claim_names", "group_names"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A frame as its body sees it."""

    iterator: str
    index: int
    base_index: int = 0
    """The number of its first row in the slot."""
    slot: int
    rows: Sequence[Any]
    table: LazyMapping | None = None
    """The same rows as a table, where they are one."""
    policy: Json = {}


class FrameNames:
    """The names of one frame. Rows are numbered from 0 within it."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._count = len(window.rows)
        self.frame: Mapping[str, Any] = _frame(window)
        self._same: Json = {
            "_worker_slot_id": window.slot,
            "_frame_index": window.index,
            "_frame_row_count": self._count,
            "parent": None,
        }

    def of_row(self, row: int, value: Any) -> dict[str, Any]:
        """The names of a body that runs once per row; `value` is that row."""
        window, number = self._window, self._window.base_index + row
        own = {window.iterator: value, "_index": number, "index": number, "_first": number == 0,
               "_frame_row_index": row}  # fmt: skip
        return {
            window.iterator: value,
            "iter": {**own, **self._same},
            "loop_index": number,
            "loop": {"index": number, "first": number == 0},
            "frame": self.frame,
        }

    def of_frame(self) -> dict[str, Any]:
        """The names of a body that runs once for the whole frame."""
        window = self._window
        rows, first = window.rows, window.base_index
        own = {window.iterator: rows, f"{window.iterator}_rows": rows, "_index": first, "index": first,
               "_first": first == 0, "_frame_row_index": 0}  # fmt: skip
        return {
            window.iterator: rows,
            "iter": {**own, **self._same},
            "loop_index": first,
            "loop": {"index": first, "first": first == 0},
            "frame": self.frame,
        }


def _frame(window: Window) -> Mapping[str, Any]:
    said: dict[str, Any] = {
        "index": window.index,
        "base_index": window.base_index,
        "row_count": len(window.rows),
        "rows": window.rows,
        "worker_slot_id": window.slot,
        "policy": window.policy,
    }
    if window.table is not None:
        said["table"] = window.table
    shown: Mapping[str, Any] = composed(said)
    return shown


def group_names(key: Json, rows: Sequence[Any], index: int, table: LazyMapping | None = None) -> dict[str, Any]:
    """The names of the body of a reduce, for one group; the key of the one group of all rows is empty."""
    said: dict[str, Any] = {"key": key, "index": index, "row_count": len(rows), "rows": rows}
    if table is not None:
        said["table"] = table
    return {"group": composed(said)}


def claim_names(policy: Json, slot: int) -> Json:
    """What a claim sees beside the names of the execution."""
    return {"__frame_max_rows": policy["max_rows"], "__frame_policy": policy, "__worker_slot_id": slot}
