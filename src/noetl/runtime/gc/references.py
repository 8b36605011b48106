"""What the log keeps alive: every object that an event names, and until when.

Events are read as they are stored, each against its checksum: an event whose reference was damaged would give its
object away. Almost every reference holds for ever. One that says when it expires holds until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from noetl.adapters.sqlite.inventory import Inventory
from noetl.data.stage.listing import listings_in
from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel.event import PayloadRef, Record, checksum_of
from noetl.kernel.streams import execution_of
from noetl.kernel.time import parse_time
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.payloads.blocking import in_thread
from noetl.payloads.store import payload_key
from noetl.ports.catalog import Catalog
from noetl.ports.ledger import Audited, Ledger
from noetl.runtime.gc.naming import names_in, owner_of

__all__ = ["FOREVER", "References", "references_in"]

FOREVER = (1 << 63) - 1
_PAGE = 1000
_EXPIRING = b'"expires_at"'
_LISTING = (b'"form":"frames"', b'"slice":')
_SHORT_LIVED = "step"


class References:
    """The references of one ledger, as far as it has been read."""

    def __init__(self, ledger: Ledger, inventory: Inventory, *, follow: bool = False) -> None:
        """With `follow` the objects are remembered that name others in turn."""
        self._ledger = ledger
        self._follow = follow
        self.listings: set[str] = set()
        """The keys of lists that events name: of a stage's outputs, and of what it runs over."""
        self._inventory = inventory
        self._tenants: set[str] = set()
        self.position = 0
        self.events = 0

    async def catch_up(self) -> None:
        """Take what has been committed since. Raises IntegrityMismatch for an event that is not what was written."""
        while page := await self._ledger.audit(after_position=self.position, limit=_PAGE):
            await in_thread(self._take, page)
            self.position = page[-1].position
            self.events += len(page)

    async def add_catalog(self, catalog: Catalog, own_tenant: str) -> None:
        """Take the documents that are registered: whoever runs one of them next refers to it again."""
        for tenant in sorted({*self._tenants, own_tenant}):
            cursor: str | None = None
            while True:
                page = await catalog.list(tenant, cursor=cursor, limit=_PAGE)
                for entry in page.entries:
                    for version in await catalog.versions(tenant, entry.path):
                        self._inventory.refer({bytes.fromhex(version.sha256): FOREVER})
                cursor = page.next_cursor
                if cursor is None:
                    break

    def _take(self, page: Iterable[Audited]) -> None:
        references: dict[bytes, int] = {}
        executions: dict[tuple[str, int], bool] = {}
        for found in page:
            record = found.record
            if checksum_of(record) != found.envelope_checksum:
                raise IntegrityMismatch(
                    f"event {record.event_id} at position {found.position} is not what was written, "
                    "so it is not known what it refers to",
                    hint="run noetl verify --all; nothing is collected before the log is sound",
                )
            self._tenants.add(record.tenant_id)
            if self._follow:
                self.listings.update(_listings_of(record))
            for identity, until in references_in(record).items():
                references[identity] = max(until, references.get(identity, 0))
            execution = execution_of(record.stream_id)
            if execution is not None:
                owner = (owner_of(record.tenant_id), execution)
                executions[owner] = executions.get(owner, False) or canonical_type(record.event_type) in TERMINAL_TYPES
        self._inventory.refer(references)
        self._inventory.meet(executions)


def _listings_of(record: Record) -> Iterator[str]:
    payload = bytes(record.payload)
    if not any(sign in payload for sign in _LISTING):
        return
    own = None
    if record.payload_ref is not msgspec.UNSET:
        own = msgspec.json.decode(record.payload_ref, type=PayloadRef)
    for ref in listings_in(record.event_type, msgspec.json.decode(payload), own):
        yield payload_key(record.tenant_id, ref.sha256) if ref.key is None else ref.key


def references_in(record: Record) -> dict[bytes, int]:
    """Every object that an event names, and the moment until which that keeps it."""
    payload = bytes(record.payload)
    ref = b"" if record.payload_ref is msgspec.UNSET else bytes(record.payload_ref)
    expiring: dict[bytes, int] = {}
    texts = [payload]
    if _EXPIRING in payload:
        texts = []
        for said in _parts(msgspec.json.decode(payload)):
            until = _expiry(said) if isinstance(said, dict) else None
            if until is None:
                texts.append(msgspec.json.encode(said))
            else:
                for identity in names_in(msgspec.json.encode(said)):
                    expiring[identity] = max(until, expiring.get(identity, 0))
    found = {identity: expiring.get(identity, FOREVER) for identity in names_in(ref)}
    found = {**expiring, **found}
    for text in (*texts, bytes(record.meta)):
        found.update(dict.fromkeys(names_in(text), FOREVER))
    return found


def _parts(value: Any) -> Iterator[Any]:
    """The references that expire, each as a whole, and all that stands around them."""
    if isinstance(value, dict) and _expiry(value) is None:
        for name, item in value.items():
            yield name
            yield from _parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item)
    else:
        yield value


def _expiry(said: dict[str, Any]) -> int | None:
    """When a reference to a result ends; None for one that does not, or that cannot be understood."""
    if said.get("kind") != "result_ref" or said.get("scope") != _SHORT_LIVED:
        return None
    try:
        return parse_time(said["expires_at"])
    except (KeyError, InvalidInput, AttributeError, TypeError):
        return None
