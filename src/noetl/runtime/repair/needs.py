"""What the log needs: each object that an event cannot be understood without, once, with what the event says of it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator

import msgspec

from noetl.data.stage.listing import listed_in, stored_at
from noetl.errors import Corruption, InvalidName, NotFound
from noetl.kernel.event import Envelope, PayloadRef
from noetl.kernel.names import ResultName, parse
from noetl.kernel.streams import category_of
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.objects import ObjectStore
from noetl.runtime.references import document_of, listings_of, references_of

__all__ = ["Looked", "Need", "inside_of", "needs_of", "needs_of_event"]

_PAGE = 1000
_SEEN_BYTES = 16  # of a digest, enough to tell keys apart


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


class Looked:
    """The objects that have been looked at, in little memory for each of millions."""

    def __init__(self) -> None:
        self._places: set[bytes] = set()

    def is_new(self, key: str) -> bool:
        """Whether it is the first time that this key comes; from now on it is not."""
        place = hashlib.sha256(key.encode()).digest()[:_SEEN_BYTES]
        is_new = place not in self._places
        self._places.add(place)
        return is_new


async def needs_of(ledger: Ledger, root: Stream | None = None, looked: Looked | None = None) -> AsyncIterator[Need]:
    """The objects of one execution, or of the whole ledger, in the order in which events refer to them, each once.

    Those of executions that have left the ledger for an archive come last.
    """
    looked = looked or Looked()
    async for event in _events(ledger, root):
        for need in needs_of_event(event):
            if looked.is_new(need.key):
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
    own, listings = event.payload_ref, {stored_at(ref) for ref in listings_of(event)}
    if own is not None and own.key is not None:
        yield Need(key=own.key, ref=own, event=event)
    for ref in references_of(event):
        key = stored_at(ref)
        if key is not None:
            yield Need(key=key, ref=ref, event=event, is_document=ref == document, is_listing=key in listings)


async def inside_of(objects: ObjectStore, need: Need) -> AsyncIterator[Need]:
    """The objects that a list names and that an event need not refer to, if this is one and it can be read."""
    if not need.is_listing:
        return
    try:
        data = await objects.get(need.key)
    except (NotFound, Corruption):
        return  # it is among the findings
    for ref in listed_in(data, need.ref):
        key = stored_at(ref)
        if ref.key is None and key is not None:
            yield Need(key=key, ref=ref, event=need.event)


def _name_of(uri: str) -> object:
    try:
        return parse(uri)
    except InvalidName:
        return None
