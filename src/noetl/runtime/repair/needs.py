"""What the log needs: each object that an event cannot be understood without, once, with what the event says of it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator

import msgspec

from noetl.data.stage.listing import listed_in
from noetl.errors import InvalidName
from noetl.kernel.event import Envelope, PayloadRef
from noetl.kernel.names import PayloadName, ResultName, parse
from noetl.kernel.streams import category_of
from noetl.payloads.store import payload_key
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.references import document_of, listings_of, references_of

__all__ = ["Need", "needs_inside", "needs_of", "needs_of_event"]

_PAGE = 1000
_SEEN_BYTES = 16  # of a digest, enough to tell keys apart, and little for each of millions


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """An object, and the first event that refers to it."""

    key: str
    ref: PayloadRef
    event: Envelope
    is_document: bool = False
    is_listing: bool = False
    """Whether it names other objects in turn."""

    @property
    def is_own(self) -> bool:
        """Whether the event may say what the object is: it is a payload, or a result of the event's own execution."""
        name = _name_of(self.ref.uri)
        if isinstance(name, ResultName):
            own = (name.coordinates.tenant, name.coordinates.execution_id)
            return own == (self.event.tenant_id, self.event.execution_id)
        return True

    @property
    def step(self) -> str | None:
        """The step and its run, as a result's name spells them; else what the event says."""
        name = _name_of(self.ref.uri)
        if isinstance(name, ResultName):
            return f"{name.coordinates.step}~{name.coordinates.run}"
        return self.event.node_name

    @property
    def row(self) -> int | None:
        """The iteration or row of a result."""
        name = _name_of(self.ref.uri)
        return name.coordinates.row if isinstance(name, ResultName) else None

    @property
    def attempt(self) -> int | None:
        """The attempt of a result; else what the event says."""
        name = _name_of(self.ref.uri)
        return name.coordinates.attempt if isinstance(name, ResultName) else self.event.attempt


async def needs_of(ledger: Ledger, root: Stream | None = None) -> AsyncIterator[Need]:
    """The objects of one execution, or of the whole ledger, in the order in which events refer to them.

    Those of executions that have left the ledger for an archive come last.
    """
    seen = set[bytes]()
    async for event in _events(ledger, root):
        for need in needs_of_event(event):
            place = hashlib.sha256(need.key.encode()).digest()[:_SEEN_BYTES]
            if place not in seen:
                seen.add(place)
                yield need


async def _events(ledger: Ledger, root: Stream | None) -> AsyncIterator[Envelope]:
    position = 0
    while page := await (
        ledger.read_all(after_position=position, limit=_PAGE)
        if root is None
        else ledger.read_root(root, after_position=position, limit=_PAGE)
    ):
        for item in page:
            yield item.event
        position = page[-1].position
    after: Stream | None = None
    while root is None and (left := await ledger.forgotten(after=after, limit=_PAGE)):
        for one in left:
            async for event in _events(ledger, one.root):
                yield event
        after = left[-1].root


def needs_of_event(event: Envelope) -> Iterator[Need]:
    """The objects that one event refers to."""
    if category_of(event.stream_id) != "execution":
        return
    document = document_of(event)
    own, listings = event.payload_ref, {_key_of(ref) for ref in listings_of(event)}
    if own is not None and own.key is not None:
        yield Need(key=own.key, ref=own, event=event)
    for ref in references_of(event):
        key = _key_of(ref)
        if key is not None:
            yield Need(key=key, ref=ref, event=event, is_document=ref == document, is_listing=key in listings)


def needs_inside(need: Need, data: bytes) -> Iterator[Need]:
    """The objects that a list names and that no event refers to."""
    for ref in listed_in(data, need.ref):
        key = _key_of(ref)
        if ref.key is None and key is not None:
            yield Need(key=key, ref=ref, event=need.event)


def _key_of(ref: PayloadRef) -> str | None:
    if ref.key is not None:
        return ref.key
    name = _name_of(ref.uri)
    return payload_key(name.tenant, name.sha256) if isinstance(name, PayloadName) else None


def _name_of(uri: str) -> object:
    try:
        return parse(uri)
    except InvalidName:
        return None
