"""The state of one root: an execution, a registry entry, a subscription or a tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from noetl.errors import Corruption
from noetl.kernel.fold import rows
from noetl.kernel.fold.rows import Row
from noetl.kernel.fold.surface import Key, Surface, bundle_of

__all__ = ["SURFACES_BY_CATEGORY", "State"]

ROOT_ID = "root"


class _Shape(msgspec.Struct, frozen=True):
    row: type[Row]
    key_field: str | None
    numeric: bool

    def make(self, key: Key) -> Row:
        return self.row() if self.key_field is None else self.row(**{self.key_field: key})

    def key_of(self, row: Row) -> Key:
        return ROOT_ID if self.key_field is None else getattr(row, self.key_field)


# The root surface comes first: it counts every event of its streams.
SURFACES_BY_CATEGORY: Mapping[str, Mapping[str, _Shape]] = {
    "execution": {
        "execution": _Shape(rows.ExecutionRow, None, False),
        "stages": _Shape(rows.StageRow, "stage_id", True),
        "frames": _Shape(rows.FrameRow, "frame_id", True),
        "commands": _Shape(rows.CommandRow, "command_id", True),
        "business_objects": _Shape(rows.BusinessObjectRow, "object_id", False),
        "loops": _Shape(rows.LoopRow, "loop_id", False),
    },
    "registry": {
        "resource": _Shape(rows.ResourceRow, None, False),
        "grants": _Shape(rows.GrantRow, "grant_id", False),
    },
    "subscription": {"subscription": _Shape(rows.SubscriptionRow, None, False)},
    "tenant": {"tenant": _Shape(rows.TenantRow, None, False)},
}


class State:
    """What a fold knows. It belongs to the fold, which changes it in place."""

    __slots__ = ("category", "surfaces")

    def __init__(self, category: str) -> None:
        self.category = category
        self.surfaces: dict[str, Surface[Any]] = {
            name: Surface(name, shape.make) for name, shape in SURFACES_BY_CATEGORY[category].items()
        }

    @property
    def root(self) -> Any:
        """The row of the root itself, marked as changed."""
        return next(iter(self.surfaces.values())).edit(ROOT_ID)

    def bundle(self) -> dict[str, str]:
        """The checksum of every surface."""
        return bundle_of(self.surfaces)

    def rows(self, surface: str) -> list[tuple[str, Row]]:
        """A surface's rows with the ids they are stored under, in order of key."""
        return [(str(key), row) for key, row in sorted(self.surfaces[surface].rows.items())]

    def take_changed(self) -> list[tuple[str, str, Row]]:
        """Surface, id and row of everything changed since this was last asked."""
        taken = []
        for name, surface in self.surfaces.items():
            taken += [(name, str(key), surface.rows[key]) for key in surface.changed]
            surface.changed.clear()
        return taken

    def load(self, surface: str, encoded: bytes, where: str) -> None:
        """Put back a row from its canonical bytes. A row that cannot be read is corruption, not a guess."""
        shape = SURFACES_BY_CATEGORY[self.category][surface]
        try:
            row = decoder_of(shape.row)(encoded)
        except msgspec.MsgspecError as error:
            raise Corruption(f"{where}: row of surface '{surface}' cannot be read: {error}") from None
        self.surfaces[surface].put(shape.key_of(row), row)


_decoders: dict[type[Row], Callable[[bytes], Row]] = {}


def decoder_of(row: type[Row]) -> Callable[[bytes], Row]:
    """The compiled decoder of a row type."""
    if row not in _decoders:
        _decoders[row] = msgspec.json.Decoder(row).decode
    return _decoders[row]
