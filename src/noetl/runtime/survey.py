"""A walk over the events of executions that proves them and finds out what they are about."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from noetl.archive.buffer import StreamEnd
from noetl.data.stage.listing import listed_in
from noetl.errors import IntegrityMismatch, InvalidInput, NoetlError, StreamSealed, VersionConflict
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope, PayloadRef
from noetl.kernel.fold import State, apply, new_state
from noetl.kernel.fold.rows import CommandRow, ExecutionRow
from noetl.kernel.names import PayloadName, ResultCoordinates
from noetl.kernel.stamp import adopt
from noetl.kernel.streams import category_of, root_of
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import UpcasterRegistry
from noetl.payloads.routes import split_route
from noetl.runtime.references import listings_of, mentions_of, object_of, references_of

__all__ = ["Survey"]


class Survey:
    """Takes events in order, from the first of each stream, and trusts none of them.

    What it remembers grows with commands and references, not with events or their results.
    """

    def __init__(self, registry: UpcasterRegistry) -> None:
        self._registry = registry
        self._states: dict[Stream, State] = {}
        self.heads: dict[Stream, StreamHead | None] = {}
        self.references: dict[str, tuple[int, PayloadRef]] = {}
        """By `object_of`, each with an event that refers to it."""
        self.listings: dict[str, PayloadRef] = {}
        """Those of them that name others in turn."""
        self._lengths: dict[str, int] = {}
        self.mentions: dict[str, PayloadName] = {}
        self.events = 0

    def take_all(self, events: Iterable[Envelope]) -> tuple[list[PayloadRef], list[PayloadName]]:
        """Take some events; the payloads that they refer to, and those they only mention, if none did before."""
        references, mentions = len(self.references), len(self.mentions)
        for event in events:
            self.take(event)
        return (
            [ref for _, ref in islice(self.references.values(), references, None)],
            [*islice(self.mentions.values(), mentions, None)],
        )

    def take(self, event: Envelope) -> None:
        """Take one event. Raises InvalidInput or IntegrityMismatch naming it."""
        if category_of(event.stream_id) != "execution":
            raise InvalidInput(f"event {event.event_id} belongs to '{event.stream_id}', not to an execution")
        try:
            adopt(event, self.heads)
        except VersionConflict as conflict:
            raise _gap(event, conflict) from None
        except StreamSealed as sealed:
            raise IntegrityMismatch(f"event {event.event_id}: {sealed.message}") from None
        self._fold(event)
        for ref in references_of(event):
            _check_key(event, ref)
            self._note(event.event_id, ref)
        for ref in listings_of(event):
            self.listings.setdefault(object_of(ref), ref)
        self.mentions.update({name.sha256: name for name in mentions_of(event) if name.sha256 not in self.mentions})
        self.events += 1

    def look_into(self, listing: PayloadRef, data: bytes) -> list[PayloadRef]:
        """Take what a list names; what of it nobody has referred to before. Raises InvalidInput, IntegrityMismatch."""
        event_id, _ = self.references[object_of(listing)]
        found = [ref for ref in listed_in(data, listing) if object_of(ref) not in self.references]
        for ref in found:
            self._note(event_id, ref)
        return found

    @property
    def roots(self) -> list[Stream]:
        """The executions, in the order they were first met."""
        return list(self._states)

    def execution(self, root: Stream) -> ExecutionRow:
        """What has become of an execution."""
        row: ExecutionRow = self._states[root].root
        return row

    def commands(self, root: Stream) -> list[CommandRow]:
        """What has become of its commands, in their order, without their results."""
        return [row for _, row in self._states[root].rows("commands") if isinstance(row, CommandRow)]

    def ends(self, root: Stream) -> tuple[StreamEnd, ...]:
        """Where the streams of an execution end, its own first."""
        heads = [head for stream, head in self.heads.items() if head is not None and _is_below(stream, root)]
        return tuple(
            StreamEnd(stream_id=head.stream_id, version=head.version, count=head.count, chain_hash=head.chain_hash)
            for head in sorted(heads, key=lambda head: head.stream_id)
        )

    def _fold(self, event: Envelope) -> None:
        """See that this release understands the event: one it does not would stop whoever projects the log."""
        root = Stream(event.tenant_id, root_of(event.stream_id))
        state = self._states.setdefault(root, new_state(root.stream_id))
        apply(state, self._registry.upcast(event))
        for _, _, row in state.take_changed():
            if isinstance(row, CommandRow):
                row.result = None  # up to 64 KiB for each command, and nobody asks this state for them

    def _note(self, event_id: int, ref: PayloadRef) -> None:
        self.references.setdefault(object_of(ref), (event_id, ref))
        known = self._lengths.setdefault(ref.sha256, ref.bytes)
        if known != ref.bytes:
            raise IntegrityMismatch(
                f"event {event_id} says that payload {ref.sha256} has {ref.bytes} bytes, another one says {known}"
            )


def _check_key(event: Envelope, ref: PayloadRef) -> None:
    """An event could name any object there is; it may name those of its own tenant's results, by their own keys."""
    key = ref.key
    if key is None:
        return
    place = ResultCoordinates.parse(ref.uri)
    if place.tenant != event.tenant_id or not place.owns(split_route(key)[1]):
        raise InvalidInput(f"event {event.event_id} refers to object '{key}', which is not that of '{ref.uri}'")


def _is_below(stream: Stream, root: Stream) -> bool:
    return stream.tenant_id == root.tenant_id and root_of(stream.stream_id) == root.stream_id


def _gap(event: Envelope, conflict: VersionConflict) -> NoetlError:
    if conflict.stream_id != event.stream_id:
        return IntegrityMismatch(f"event {event.event_id} seals another number of events than there are")
    return IntegrityMismatch(
        f"event {event.event_id} is version {event.stream_version} of '{event.stream_id}' and follows "
        f"version {conflict.actual}",
        hint="a history is sent whole, from its first event; events are missing, repeated or out of order",
    )
