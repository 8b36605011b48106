"""The wallet in memory. Records are sealed here too: a store is not a place to look values up by accident."""

from __future__ import annotations

from collections.abc import Callable

from noetl.errors import InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credential, CredentialInfo, CredentialPage, Rotation
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.tools.secrets.envelope import encrypt_text
from noetl.tools.secrets.keys import FixedKeys, Keyholder, Keys
from noetl.tools.secrets.records import Record, rewrap_record, seal_record, unseal_record
from noetl.tools.secrets.types import check_credential

__all__ = ["MemoryCredentials", "MemoryWallet"]


class MemoryWallet:
    """What a store holds, apart from the keys: records by tenant and name, and the ids of the keys so far."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Record] = {}
        self.key_ids: list[str] = []


class MemoryCredentials:
    """Records by tenant and name."""

    def __init__(self, clock: Clock, keys: Keys | None = None, wallet: MemoryWallet | None = None) -> None:
        self._clock = clock
        self._holder = Keyholder(keys or FixedKeys())
        self._wallet = wallet or MemoryWallet()

    async def put(self, tenant_id: str, credential: Credential, *, replace: bool = True) -> CredentialInfo:
        """Store a credential as the next version of its name."""
        check_credential(credential)
        key = await self._holder.key_for_writing(self._current())
        previous = self._wallet.records.get((tenant_id, credential.name))
        if previous is not None and not replace:
            raise InvalidInput(
                f"there is a credential '{credential.name}' already", hint="choose another name, or add --replace"
            )
        now = format_time(self._clock.now())
        record = seal_record(key, tenant_id, credential, previous.info if previous else None, now)
        self._wallet.records[tenant_id, credential.name] = record
        if not self._wallet.key_ids:
            self._wallet.key_ids.append(key.id)
        return record.info

    async def get(self, tenant_id: str, name: str) -> CredentialInfo:
        """Everything but the values."""
        return self._record(tenant_id, name).info

    async def resolve(self, tenant_id: str, name: str) -> Credential:
        """The credential with its values."""
        record = self._record(tenant_id, name)
        return unseal_record(await self._holder.ring_with(record.sealed.key_id), record)

    async def list(
        self, tenant_id: str, *, kind: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> CredentialPage:
        """What there is, in order of name."""
        after = read_cursor(cursor, 1)[0] if cursor else ""
        found = [
            record.info
            for (tenant, name), record in sorted(self._wallet.records.items(), key=lambda item: item[0])
            if tenant == tenant_id and name > after and kind in (None, record.info.type)
        ]
        more = len(found) > limit
        return CredentialPage(
            credentials=found[:limit], next_cursor=write_cursor(found[limit - 1].name) if more else None
        )

    async def remove(self, tenant_id: str, name: str) -> None:
        """Take a credential away for good."""
        self._record(tenant_id, name)
        del self._wallet.records[tenant_id, name]

    async def rotate(self, *, retire: bool = False) -> Rotation:
        """Wrap every data key with a new key."""
        current = self._current()
        if current is None:
            raise InvalidInput("there is no key to rotate: no credential was stored yet")
        ring = await self._holder.renew(current)
        assert ring.newest is not None, "a renewed ring has a newest key"
        rewrapped = {at: rewrap_record(ring, ring.newest, record) for at, record in self._wallet.records.items()}
        self._wallet.records.update(rewrapped)
        self._wallet.key_ids.append(ring.newest.id)
        if retire:
            await self._holder.retire(ring.newest.id)
        return Rotation(
            previous_key_id=current,
            key_id=ring.newest.id,
            key_version=len(self._wallet.key_ids),
            rewrapped=len(rewrapped),
        )

    async def key_id(self) -> str | None:
        """Which key new records are sealed with."""
        return self._current()

    async def encrypter(self) -> Callable[[str], str]:
        """A function that seals a text under the current key."""
        key = await self._holder.key_for_writing(self._current())
        return lambda text: encrypt_text(key, text)

    def _current(self) -> str | None:
        return self._wallet.key_ids[-1] if self._wallet.key_ids else None

    def _record(self, tenant_id: str, name: str) -> Record:
        record = self._wallet.records.get((tenant_id, name))
        if record is None:
            raise NotFound(f"there is no credential '{name}'", hint="noetl credential list shows what there is")
        return record
