"""Parts of a store that are listed each by itself: as many as the layout of keys gives without listing anything.

Payloads are spread over 256 folders below their tenant, results over 256 shards below the cell of their execution. A
folder that is looked into to find these is a part, too, for the objects that lie directly in it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from noetl.payloads.routes import split_route
from noetl.ports.objects import FolderedStore

__all__ = ["Shard", "plan_shards"]

_MOST = 4096
"""No more folders are looked into: what is below one that is not is one part."""
_RESULTS = "noetl/"
_SHARD = "shard="


class Shard(msgspec.Struct, frozen=True):
    """The objects below a folder; if it is not `deep`, those directly in it."""

    folder: str
    deep: bool


async def plan_shards(objects: FolderedStore, most: int = _MOST) -> list[Shard]:
    """Parts that together are the whole store, and share nothing."""
    shards: list[Shard] = []
    waiting = deque([""])
    looked = 0
    while waiting:
        folder = waiting.popleft()
        if looked >= most or not _is_parted(folder):
            shards.append(Shard(folder, deep=True))
            continue
        looked += 1
        found = await objects.level(folder)
        if found.objects:
            shards.append(Shard(folder, deep=False))
        waiting.extend(found.folders)
    return shards


def _is_parted(folder: str) -> bool:
    """Whether there are many folders somewhere below, each with a share of the objects."""
    _, folder = split_route(folder)
    segments = folder.split("/")[:-1]
    if folder.startswith(_RESULTS):
        return not segments[-1].startswith(_SHARD)
    return len(segments) < 2  # a tenant, and the beginning of a digest
