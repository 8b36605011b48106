"""Whether an object has the bytes that it should."""

from __future__ import annotations

from typing import Literal

from noetl.errors import Corruption, NotFound
from noetl.payloads.blocking import closing
from noetl.payloads.spool import Digest
from noetl.ports.objects import ObjectStore

__all__ = ["Condition", "condition_of"]

Condition = Literal["missing", "damaged"]


async def condition_of(objects: ObjectStore, key: str, *, sha256: str, size: int) -> Condition | None:
    """What is wrong with an object; None if it is sound. All of it is read."""
    digest = Digest()
    try:
        async with closing(objects.stream(key)) as chunks:
            async for chunk in chunks:
                await digest.add(chunk)
    except NotFound:
        return "missing"
    except Corruption:  # a store that checks what it gives
        return "damaged"
    return None if (digest.size, digest.sha256) == (size, sha256) else "damaged"
