"""Key-encryption keys: what wraps the data keys, and where such keys come from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl.errors import InvalidInput

__all__ = ["KEY_BYTES", "FixedKeys", "Key", "KeyMissing", "KeyRing", "Keyholder", "Keys", "make_key", "parse_key"]

KEY_BYTES = 32
_HEX = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


class Key(msgspec.Struct, frozen=True):
    """A key and the name that may be told: a digest, so two keys never share an id."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.id})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("id", self.id)]


class KeyMissing(InvalidInput):
    """A record needs a key that is not here."""


class KeyRing(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are there, the newest last, and the place they come from."""

    keys: tuple[Key, ...] = ()
    place: str

    @property
    def newest(self) -> Key | None:
        """The key that the next rotation goes to, or the first record is wrapped with."""
        return self.keys[-1] if self.keys else None

    def find(self, key_id: str) -> Key | None:
        """The key of this id, or None."""
        return next((key for key in self.keys if key.id == key_id), None)

    def need(self, key_id: str) -> Key:
        """The key of this id. Raises KeyMissing with what is there instead and how to mend it."""
        found = self.find(key_id)
        if found is not None:
            return found
        present = ", ".join(key.id for key in self.keys)
        has = f"holds {present} instead" if present else "holds no key"
        raise KeyMissing(
            f"the wallet's credentials are sealed with key {key_id}, but {self.place} {has}",
            hint="put the right wallet/kek.key back from a backup, or give that key in NOETL_WALLET__KEK",
        )


class Keys(Protocol):
    """A place that holds keys."""

    async def load(self) -> KeyRing:
        """What is there; an empty ring when there is nothing yet."""
        ...

    async def create(self) -> KeyRing:
        """Make the first key unless there is one. Of two makers the first one's key stands."""
        ...

    async def renew(self, current: str) -> KeyRing:
        """A ring whose newest key is not the current one, durable before it is returned.

        A newer key that is there already, as a rotation leaves it that was cut off, is used and none is made.
        """
        ...

    async def retire(self, keep: str) -> KeyRing:
        """Forget all keys but one."""
        ...


def make_key(secret: bytes | None = None) -> Key:
    """A key of these bytes, or of random ones."""
    chosen = secrets.token_bytes(KEY_BYTES) if secret is None else secret
    return Key("kek-" + hashlib.sha256(b"noetl key id\0" + chosen).hexdigest()[:16], chosen)


def parse_key(text: str) -> Key | None:
    """A key in hex or base64, or None for anything else: what was found is never repeated in a message."""
    text = text.strip()
    try:
        if _HEX.fullmatch(text):
            return make_key(bytes.fromhex(text))
        padded = text.rstrip("=").replace("-", "+").replace("_", "/")
        decoded = base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
    return make_key(decoded) if len(decoded) == KEY_BYTES else None


class FixedKeys:
    """Keys in memory: for stores that leave nothing behind."""

    def __init__(self, keys: Sequence[Key] = (), place: str = "memory") -> None:
        self._ring = KeyRing(keys=tuple(keys), place=place)

    async def load(self) -> KeyRing:
        """What is there."""
        return self._ring

    async def create(self) -> KeyRing:
        """Make the first key unless there is one."""
        return self._ring if self._ring.keys else self._hold((make_key(),))

    async def renew(self, current: str) -> KeyRing:
        """A ring whose newest key is not the current one."""
        newest = self._ring.newest
        if newest is not None and newest.id != current:
            return self._ring
        return self._hold((*self._ring.keys, make_key()))

    async def retire(self, keep: str) -> KeyRing:
        """Forget all keys but one."""
        return self._hold((self._ring.need(keep),))

    def _hold(self, keys: tuple[Key, ...]) -> KeyRing:
        self._ring = KeyRing(keys=keys, place=self._ring.place)
        return self._ring


class Keyholder:
    """The ring as a store last saw it; read again when a key is asked for that was not in it."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self._ring: KeyRing | None = None

    async def ring_with(self, key_id: str) -> KeyRing:
        """A ring that has this key. Raises KeyMissing."""
        if self._ring is None or self._ring.find(key_id) is None:
            self._ring = await self.keys.load()
            self._ring.need(key_id)
        return self._ring

    async def key_for_writing(self, registered: str | None) -> Key:
        """The key new records are wrapped with: the one the store has registered, else a first one.

        Only a store without any record may get a new key: another one beside sealed records would split the wallet.
        """
        if registered is not None:
            return (await self.ring_with(registered)).need(registered)
        self._ring = await self.keys.create()
        assert self._ring.newest is not None, "a created ring has a key"
        return self._ring.newest

    async def renew(self, current: str) -> KeyRing:
        """A ring with the current key and a newer one."""
        await self.ring_with(current)
        self._ring = await self.keys.renew(current)
        self._ring.need(current)
        return self._ring

    async def retire(self, keep: str) -> None:
        """Forget all keys but one."""
        self._ring = await self.keys.retire(keep)
