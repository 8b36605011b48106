"""What a stretch of the log says of objects: which it names, which executions there are, and which lists name more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from noetl.data.stage.listing import listings_in
from noetl.kernel.event import PayloadRef, Record
from noetl.kernel.streams import execution_of
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.payloads.store import payload_key
from noetl.payloads.sweeping.naming import owner_of
from noetl.payloads.sweeping.references import references_in, sound_record
from noetl.ports.ledger import Audited

__all__ = ["Mentions"]

_LISTING = (b'"form":"frames"', b'"slice":')


class Mentions(msgspec.Struct):
    """What was told by the events that have been heard."""

    references: dict[bytes, int] = {}
    """Objects by identity, and until when they are referred to."""
    executions: dict[tuple[str, int], bool] = {}
    """Executions by tenant, as keys spell it, and id; whether they have ended."""
    tenants: set[str] = set()
    listings: set[str] = set()
    """The keys of lists that events name: of a stage's outputs, and of what it runs over."""
    events: int = 0

    def hear(self, page: Iterable[Audited], *, follow: bool) -> None:
        """Take events; with `follow` their lists, too. Raises IntegrityMismatch for one that is not sound."""
        for found in page:
            record = sound_record(found)
            self.events += 1
            self.tenants.add(record.tenant_id)
            if follow:
                self.listings.update(_listings_of(record))
            for identity, until in references_in(record).items():
                self.references[identity] = max(until, self.references.get(identity, 0))
            execution = execution_of(record.stream_id)
            if execution is not None:
                owner = (owner_of(record.tenant_id), execution)
                is_end = canonical_type(record.event_type) in TERMINAL_TYPES
                self.executions[owner] = self.executions.get(owner, False) or is_end


def _listings_of(record: Record) -> Iterator[str]:
    payload = bytes(record.payload)
    if not any(sign in payload for sign in _LISTING):
        return
    own = None
    if record.payload_ref is not msgspec.UNSET:
        own = msgspec.json.decode(record.payload_ref, type=PayloadRef)
    for ref in listings_in(record.event_type, msgspec.json.decode(payload), own):
        yield payload_key(record.tenant_id, ref.sha256) if ref.key is None else ref.key
