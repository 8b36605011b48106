"""Whose a store is. A bucket that two ledgers share would be emptied by either: what it knows nothing of looks dead.

A store inside of the home belongs to the home's ledger. One that the settings name belongs to the ledger whose mark is
in it; somebody has to say so once.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from noetl.errors import InvalidInput, NotFound
from noetl.ports.ledger import Ledger
from noetl.ports.objects import ObjectStore

__all__ = ["OWNER_KEY", "check_owner", "claim"]

OWNER_KEY = "noetl/owner.json"
_MOST_BYTES = 4096
_ABOUT = b"owner of a payload store"


class _Mark(msgspec.Struct, frozen=True):
    ledger: str


async def claim(objects: ObjectStore, ledger: Ledger, prefix: str = "") -> None:
    """Mark a store as this ledger's. Raises InvalidInput if it is another's."""
    mark = _Mark(_id_of(ledger))
    await objects.put(prefix + OWNER_KEY, msgspec.json.encode(mark))
    await check_owner(objects, ledger, prefix)


async def check_owner(objects: ObjectStore, ledger: Ledger, prefix: str = "") -> None:
    """Raise InvalidInput unless the store is marked as this ledger's."""
    try:
        mark = msgspec.json.decode(await objects.get(prefix + OWNER_KEY, length=_MOST_BYTES), type=_Mark)
    except NotFound:
        raise InvalidInput(
            "nobody has said that this store belongs to this ledger alone; nothing was deleted",
            hint="if no other ledger keeps payloads under this address, add --claim once",
        ) from None
    except msgspec.DecodeError:
        raise _not_ours("cannot be understood") from None
    if not hmac.compare_digest(mark.ledger, _id_of(ledger)):
        raise _not_ours("is that of another ledger")


def _id_of(ledger: Ledger) -> str:
    if ledger.mac_key is None:
        raise InvalidInput(
            "the wallet's key is not here, so this ledger cannot show that the store is its own",
            hint="restore wallet/ledger.key from a backup",
        )
    return hmac.new(ledger.mac_key, _ABOUT, hashlib.sha256).hexdigest()


def _not_ours(problem: str) -> InvalidInput:
    return InvalidInput(
        f"the mark of the store's owner, object '{OWNER_KEY}', {problem}; nothing was deleted",
        hint="give each ledger a prefix of its own, such as s3://bucket/ours",
    )
