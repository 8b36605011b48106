"""Taking an execution over from another tenant: the same facts, stamped anew."""

from __future__ import annotations

import msgspec

from noetl.kernel.chain import extend, genesis
from noetl.kernel.event import Envelope, checksum_of, record_of
from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import seal_in
from noetl.kernel.streams import is_dense
from noetl.runtime.references import with_references

__all__ = ["Restamper"]


class Restamper:
    """Gives events another tenant, and everything that follows from it: names, checksums, chain, seals.

    Ids, times, principals and producers stay: they say what happened, and it happened elsewhere. The same
    events always give the same events again, so a second delivery is recognised.
    """

    def __init__(self, tenant_id: str, organization_id: str) -> None:
        self._tenant_id = tenant_id
        self._organization_id = organization_id
        self._chains: dict[str, str] = {}
        self._trees: dict[str, Merkle] = {}
        self._roots: dict[int, int | None] = {}

    def convert(self, event: Envelope) -> Envelope:
        """The next event, as the other tenant's. They must come in order, from the first of each stream."""
        if event.event_type == "playbook.initialized" and event.execution_id is not None:
            self._roots[event.execution_id] = event.payload.get("root_execution_id")
        moved = msgspec.structs.replace(
            with_references(event, self._tenant_id, self._roots.get),
            tenant_id=self._tenant_id,
            organization_id=self._organization_id,
        )
        moved = self._sealing(moved)
        checksum = checksum_of(record_of(moved))
        chain_hash = None
        if is_dense(moved.stream_id):
            chain_hash = extend(self._chains.get(moved.stream_id) or genesis(moved.stream_id), checksum)
            self._chains[moved.stream_id] = chain_hash
        else:
            self._trees.setdefault(moved.stream_id, Merkle()).add(checksum)
        return msgspec.structs.replace(moved, envelope_checksum=checksum, chain_hash=chain_hash)

    def _sealing(self, event: Envelope) -> Envelope:
        """A seal is over checksums, which are others now."""
        seal = seal_in(event)
        if seal is None:
            return event
        tree = self._trees.get(seal.stream_id, Merkle())
        anew = msgspec.structs.replace(seal, root=tree.root(), peaks=tree.peaks if seal.peaks else ())
        return msgspec.structs.replace(event, payload={**event.payload, "seal": msgspec.to_builtins(anew)})
