"""A credential as it is stored: what may be known in the open, the values sealed."""

from __future__ import annotations

import msgspec

from noetl.errors import Corruption
from noetl.ports.credentials import Credential, CredentialInfo
from noetl.tools.secrets import envelope
from noetl.tools.secrets.envelope import Sealed
from noetl.tools.secrets.keys import Key, KeyRing

__all__ = ["Record", "rewrap_record", "seal_record", "unseal_record"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the wallet."""

    info: CredentialInfo
    sealed: Sealed


def seal_record(key: Key, tenant_id: str, credential: Credential, previous: CredentialInfo | None, now: str) -> Record:
    """The next version of a credential."""
    info = CredentialInfo(
        tenant_id=tenant_id,
        name=credential.name,
        type=credential.type,
        description=credential.description,
        tags=credential.tags,
        fields=tuple(credential.data),
        version=previous.version + 1 if previous else 1,
        key_id=key.id,
        created_at=previous.created_at if previous else now,
        updated_at=now,
    )
    return Record(info=info, sealed=envelope.seal(key, msgspec.json.encode(credential.data), _context(info)))


def unseal_record(ring: KeyRing, record: Record) -> Credential:
    """The credential with its values."""
    info = record.info
    try:
        data = msgspec.json.decode(envelope.unseal(ring, record.sealed, _context(info)))
    except Corruption as error:
        raise Corruption(f"credential '{info.name}': {error.message}", hint=error.hint) from None
    return Credential(name=info.name, type=info.type, description=info.description, tags=info.tags, data=data)


def rewrap_record(ring: KeyRing, key: Key, record: Record) -> Record:
    """The same record under another key: the version stays, for nothing in it is new."""
    try:
        sealed = envelope.rewrap(ring, key, record.sealed, _context(record.info))
    except Corruption as error:
        raise Corruption(f"credential '{record.info.name}': {error.message}", hint=error.hint) from None
    return Record(info=msgspec.structs.replace(record.info, key_id=key.id), sealed=sealed)


def _context(info: CredentialInfo) -> bytes:
    """What the values belong to; a JSON list, so that no two records have the same text."""
    return msgspec.json.encode(["noetl.credential", 1, info.tenant_id, info.name, info.version, info.type])
