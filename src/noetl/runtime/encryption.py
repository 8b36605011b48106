"""Encrypting what a store holds already: after encryption was switched on, and after a change of keys."""

from __future__ import annotations

import msgspec

from noetl.adapters.objects.encrypted import EncryptedObjectStore
from noetl.errors import InvalidInput
from noetl.ports.objects import ObjectStore

__all__ = ["Encryption", "encrypt_all"]


class Encryption(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a store."""

    key_id: str
    objects: int
    encrypted: int


async def encrypt_all(objects: ObjectStore, *, rotate: bool = False, retire: bool = False) -> Encryption:
    """Have every object encrypted with the newest key, with `rotate` a new one; `retire` forgets the others then.

    Killed at any moment, everything still opens, and another call finishes the work. Keys are forgotten only after a
    whole pass that found nothing to do: what others store while this runs may have begun with an older key. Raises
    InvalidInput if the store is not an encrypted one.
    """
    if not isinstance(objects, EncryptedObjectStore):
        raise InvalidInput("payloads are not encrypted here", hint="set payloads.encrypt = true first")
    key_id = await objects.rotate() if rotate else await objects.key_id()
    seen, changed = await _pass(objects)
    if retire:
        while (again := (await _pass(objects))[1]) > 0:
            changed += again
        await objects.retire()
    return Encryption(key_id=key_id, objects=seen, encrypted=changed)


async def _pass(objects: EncryptedObjectStore) -> tuple[int, int]:
    seen = changed = 0
    async for info in objects.list():
        changed += await objects.reseal(info.key)
        seen += 1
    return seen, changed
