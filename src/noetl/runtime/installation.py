"""An installation of several servers: what they must have in common before one more may join.

Each has a home of its own. The key that seals the log, the key of the credentials and the store of payloads are the
same for all of them. A server with another one would write what the others refuse, or read what is not there; so it
does not start. What is compared are fingerprints, which the database keeps from the first server on.
"""

from __future__ import annotations

import hashlib
import secrets

import msgspec

from noetl.errors import Conflict, Corruption, InvalidInput, NotFound
from noetl.ports.credentials import Credentials
from noetl.ports.kv import NEW, Kv
from noetl.ports.objects import ObjectStore
from noetl.tools.secrets.keys import Keys

__all__ = ["STORE_KEY", "Means", "join"]

STORE_KEY = "noetl/store.json"
"""The object that says which store this is."""
_RECORD = "installation"
_MOST_BYTES = 4096


class _Common(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all servers; nothing of it can be turned back into a key."""

    ledger_key: str
    wallet_key: str
    store: str


class _Mark(msgspec.Struct, frozen=True):
    store: str


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What a server brings along."""

    kv: Kv
    credentials: Credentials
    ledger_key: bytes | None
    wallet_keys: Keys
    objects: ObjectStore
    store: str
    """Where the objects are, as people know it."""


async def join(means: Means) -> None:
    """Be one of an installation's servers; the first one makes what the others must have.

    Raises InvalidInput for a key that is missing or not theirs, and for another store.
    """
    if means.ledger_key is None:
        raise _wrong_ledger_key("this server has no key to seal the log with")
    own = _fingerprint(means.ledger_key)
    while True:
        found = await means.kv.get(_RECORD)
        if found is not None and found.value is not None:
            return await _check(means, own, _read(found.value))
        ring = await means.wallet_keys.create()
        assert ring.newest is not None, "a created ring has a key"
        common = _Common(
            ledger_key=own,
            wallet_key=await means.credentials.key_id() or ring.newest.id,
            store=await _made_store(means.objects),
        )
        try:
            await means.kv.put(_RECORD, msgspec.json.encode(common), expected=NEW)
        except Conflict:
            continue  # another server was first: what it has made counts


async def _check(means: Means, own: str, common: _Common) -> None:
    if own != common.ledger_key:
        raise _wrong_ledger_key(
            f"the key that this server seals the log with is {own}, that of the other servers {common.ledger_key}"
        )
    needed = await means.credentials.key_id() or common.wallet_key
    ring = await means.wallet_keys.load()
    if ring.find(needed) is None:
        there = ", ".join(key.id for key in ring.keys)
        raise InvalidInput(
            f"the other servers seal credentials with key {needed}, but {ring.place} holds {there or 'no key'}",
            hint="give every server the same: NOETL_WALLET__KEK, NOETL_WALLET__KEK_FILE, or a copy of wallet/kek.key",
        )
    if await _store(means.objects) != common.store:
        raise InvalidInput(
            f"payloads are kept in {means.store} here, which is not the store of the other servers",
            hint="set payloads.url to the store that all of them share; what has moved to another one must have moved "
            f"with its object {STORE_KEY}",
        )


def _wrong_ledger_key(message: str) -> InvalidInput:
    return InvalidInput(
        message,
        hint="give every server the same key: NOETL_LEDGER_KEY, NOETL_LEDGER_KEY_FILE, or a copy of wallet/ledger.key",
    )


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"key of a ledger\0" + key).hexdigest()[:16]


def _read(value: bytes) -> _Common:
    try:
        return msgspec.json.decode(value, type=_Common)
    except msgspec.MsgspecError:
        raise Corruption(
            f"what the database says of this installation, value '{_RECORD}', cannot be understood",
            hint="stop all servers, delete that row of noetl.kv, and start the right one first",
        ) from None


async def _made_store(objects: ObjectStore) -> str:
    """Which store this is; one that was never asked gets a name."""
    await objects.put(STORE_KEY, msgspec.json.encode(_Mark(secrets.token_hex(8))))
    found = await _store(objects)
    assert found is not None, "it was just put there"
    return found


async def _store(objects: ObjectStore) -> str | None:
    """Which store this is; None for one without a name. One that cannot be understood is nobody's."""
    try:
        return msgspec.json.decode(await objects.get(STORE_KEY, length=_MOST_BYTES), type=_Mark).store
    except NotFound:
        return None
    except msgspec.MsgspecError:
        return ""
