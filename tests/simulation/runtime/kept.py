"""The object store, watched by somebody who knows what a barrier promises.

Who looks for the outcome of an effect after it was made durable may not have that effect again; who looked before may.
What was kept first stays as it is; and in the end every effect that went well was kept.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable
from typing import Any

from noetl.adapters.memory.objects import MemoryObjectStore

__all__ = ["WatchedObjects"]

_EFFECT = re.compile(r"/execution=(\d+)/results/(.+/effect~.+)\.bin")


class WatchedObjects(MemoryObjectStore):
    """Objects in memory. Effects are told by execution and place, as their keys end."""

    def __init__(self, now_micros: Callable[[], int], blame: Callable[[str], None]) -> None:
        super().__init__(now_micros=now_micros)
        self._blame = blame
        self._moment = 0
        self._kept: dict[str, int] = {}
        self._looked: dict[tuple[object, str], int] = {}
        self._went_well: set[str] = set()

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        if name := _name_of(key):
            from tests.simulation.runtime.gate import inside

            self._looked[inside(), name] = self._now()
        return await super().get(key, start=start, length=length)

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        name, before = _name_of(key), self._objects.get(key)
        written = await super().put(key, data, overwrite=overwrite)
        if name and written:
            if before is not None:
                self._blame(f"the outcome of {name} was replaced by another")
            self._kept.setdefault(name, self._now())
        return written

    def happens(self, effect_key: str, who: object) -> None:
        """An effect behind the barrier happens."""
        name = effect_key.split("/", 2)[2]
        looked = self._looked.get((who, name))
        if looked is None:
            self._blame(f"{name} happened before anybody looked whether it had")
        elif self._kept.get(name, looked) < looked:
            self._blame(f"{name} happened again although its outcome was found")

    def went_well(self, effect_key: str) -> None:
        """An effect was had, and its outcome is worth keeping."""
        self._went_well.add(effect_key.split("/", 2)[2])

    @property
    def lost(self) -> list[str]:
        """What went well and was not kept."""
        return sorted(self._went_well - self._kept.keys())

    def _now(self) -> int:
        self._moment += 1
        return self._moment


def _name_of(key: str) -> str | None:
    found: Any = _EFFECT.search(key)
    return f"{found[1]}/{found[2]}" if found else None
