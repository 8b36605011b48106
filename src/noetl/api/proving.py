"""Proving here what a server says of an execution, from the events it has sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from noetl.api.state import Proof, State
from noetl.errors import InvalidEvent, InvalidInput, NoetlError
from noetl.kernel.chain import extend, genesis
from noetl.kernel.event import Envelope, checksum_of, record_of
from noetl.kernel.fold import apply, new_state, state_checksum
from noetl.kernel.plain import with_number_ids
from noetl.kernel.streams import execution_stream
from noetl.kernel.upcast import default_registry

__all__ = ["envelope_of", "prove"]


def envelope_of(data: str) -> Envelope:
    """An event as a server sends it.

    In JSON its ids are text, because not every reader has 63 bits. Which of those inside the payload were numbers
    the checksum tells.
    """
    try:
        said = msgspec.json.decode(data, type=dict[str, Any])
        event = msgspec.convert(said, Envelope, strict=False)
        if checksum_of(record_of(event)) == event.envelope_checksum:
            return event
        inner: dict[str, Any] = {name: with_number_ids(said[name]) for name in ("payload", "meta") if name in said}
        other = msgspec.convert({**said, **inner}, Envelope, strict=False)
        return other if checksum_of(record_of(other)) == other.envelope_checksum else event
    except (msgspec.MsgspecError, NoetlError) as error:
        raise InvalidInput(f"the server sent an event that cannot be read: {error}") from None


def prove(execution_id: int, events: Sequence[Envelope], said: State) -> Proof:
    """Walk the execution's own stream, checksum by checksum, fold it, and compare with what the server says.

    The state of an execution with data stages also depends on streams that were not sent; then the chain is proven
    and the state is not compared, and `events` says how many events were looked at.
    """
    problems: list[tuple[int, str]] = []
    stream_id = execution_stream(execution_id)
    chain = genesis(stream_id)
    for version, event in enumerate(events, start=1):
        if (event.stream_id, event.stream_version) != (stream_id, version):
            problems.append((event.event_id, f"event {event.event_id} is not number {version} of {stream_id}"))
        checksum = checksum_of(record_of(event))
        if checksum != event.envelope_checksum:
            problems.append((event.event_id, f"event {event.event_id} does not match its checksum"))
        chain = extend(chain, checksum)
        if chain != event.chain_hash:
            problems.append((event.event_id, f"event {event.event_id} does not continue the hash chain"))
            chain = event.chain_hash or chain
    parity, why = (True, None) if problems or said.event_count != len(events) else _compared(stream_id, events, said)
    return Proof(
        execution_id=execution_id,
        events=len(events),
        chain_ok=not problems,
        keyed=False,
        parity=parity,
        first_bad_event=problems[0][0] if problems else None,
        problems=[*(what for _, what in problems), *([why] if why else [])],
    )


def _compared(stream_id: str, events: Sequence[Envelope], said: State) -> tuple[bool, str | None]:
    """Whether the fold of these events is the state that the server has."""
    registry, state = default_registry(), new_state(stream_id)
    try:
        for event in events:
            state = apply(state, registry.upcast(event))
    except InvalidEvent as error:
        return False, error.message
    checksum = state_checksum(state.bundle(), registry.digest())
    if checksum == said.checksum:
        return True, None
    other = [name for name, total in state.bundle().items() if said.checksums.get(name) != total]
    return False, f"the server's state differs from what its events give, in {', '.join(other) or 'the registry'}"
