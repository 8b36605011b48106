"""Schedules in files, so that a failure can be run again."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

__all__ = ["load_schedule", "save_schedule"]

S = TypeVar("S", bound=msgspec.Struct)


def save_schedule(schedule: msgspec.Struct, path: Path) -> Path:
    """Write a schedule."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(schedule)) + b"\n")
    return path


def load_schedule(path: Path, kind: type[S]) -> S:
    """Read a schedule."""
    return msgspec.json.decode(path.read_bytes(), type=kind)
