"""How every benchmark is measured."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["ROUNDS", "Measurement", "alternate", "settle", "workplace"]

ROUNDS = 5


class Measurement(msgspec.Struct, kw_only=True):
    """What a benchmark prints."""

    bench: str
    ours: float
    reference: float
    ratio: float
    unit: str
    detail: dict[str, Any]


def workplace() -> Path:
    """Where a benchmark keeps its files: on the project's own disk, because durability is part of what is measured."""
    place = Path("build/benchmarks")
    place.mkdir(parents=True, exist_ok=True)
    return place


def settle() -> None:
    """Take what a benchmark has prepared out of the garbage collector's sight: only the work itself is measured."""
    gc.collect()
    gc.freeze()


def alternate(
    bench: str,
    unit: str,
    ours: Callable[[int], float],
    reference: Callable[[int], float],
    *,
    rounds: int = ROUNDS,
    detail: dict[str, Any] | None = None,
) -> Measurement:
    """Medians of both sides, taken turn by turn so that a busy moment of the machine hits both.

    Each side gets the number of its round and returns its figure; round 0 warms up and is not counted.
    """
    ours(0), reference(0)
    figures = [(ours(number), reference(number)) for number in range(1, rounds + 1)]
    mine = statistics.median(figure for figure, _ in figures)
    theirs = statistics.median(figure for _, figure in figures)
    rounds_seen = {"ours": [figure for figure, _ in figures], "reference": [figure for _, figure in figures]}
    return Measurement(
        bench=bench,
        ours=mine,
        reference=theirs,
        ratio=mine / theirs,
        unit=unit,
        detail={**(detail or {}), "rounds": rounds_seen},
    )
