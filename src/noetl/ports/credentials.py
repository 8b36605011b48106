"""Credentials: secrets by name, sealed where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from noetl.kernel.event import Json

__all__ = ["Credential", "CredentialInfo", "CredentialPage", "Credentials", "Rotation"]


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What a person stores, values included. It is never printed by accident: its text has no values."""

    name: str
    type: str
    data: Json
    description: str = ""
    tags: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Credential(name={self.name!r}, type={self.type!r}, fields={sorted(self.data)!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("type", self.type), ("fields", sorted(self.data))]


class CredentialInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What may be known about a credential by those who may not know its values."""

    tenant_id: str
    name: str
    type: str
    description: str
    tags: tuple[str, ...]
    fields: tuple[str, ...]
    version: int
    key_id: str
    """The key-encryption key that its data key is wrapped with."""
    created_at: str
    updated_at: str


class CredentialPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some credentials, and where the next ones begin."""

    credentials: Sequence[CredentialInfo]
    next_cursor: str | None


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """What a rotation did: from which key to which, and for how many records of all tenants."""

    previous_key_id: str
    key_id: str
    key_version: int
    rewrapped: int


class Credentials(Protocol):
    """The wallet. Every name belongs to a tenant; one key-encryption key protects all of them."""

    async def put(self, tenant_id: str, credential: Credential, *, replace: bool = True) -> CredentialInfo:
        """Store a credential as the next version of its name.

        Raises InvalidInput for a name or data that its type does not allow, and for a name that is taken when
        it may not be replaced.
        """
        ...

    async def get(self, tenant_id: str, name: str) -> CredentialInfo:
        """Everything but the values; works without the key. Raises NotFound."""
        ...

    async def resolve(self, tenant_id: str, name: str) -> Credential:
        """The credential with its values. Raises NotFound, and InvalidInput when the key for it is not here."""
        ...

    async def list(
        self, tenant_id: str, *, kind: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> CredentialPage:
        """What there is, in order of name. Never values."""
        ...

    async def remove(self, tenant_id: str, name: str) -> None:
        """Take a credential away for good. Raises NotFound."""
        ...

    async def rotate(self, *, retire: bool = False) -> Rotation:
        """Wrap every data key of every tenant with a new key-encryption key; sealed data is not touched.

        Interrupted anywhere, every record opens with the keys that are there, and rotating again finishes
        the work. With `retire` the older keys are forgotten afterwards, and with them older copies of the store.
        """
        ...

    async def key_id(self) -> str | None:
        """Which key new records are sealed with; None while no record was ever stored. Works without the key."""
        ...

    async def encrypter(self) -> Callable[[str], str]:
        """A function that seals a text under the current key, for the filter `encrypt_secret`."""
        ...
