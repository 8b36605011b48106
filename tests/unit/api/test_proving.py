"""What a server sends is proven here: a changed event, a lost one, and a state that does not follow from them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import noetl
from noetl.api.proving import envelope_of, prove
from noetl.api.state import State
from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope
from noetl.kernel.plain import with_text_ids
from tests.unit.api.books import HELLO


@pytest.fixture
def told(home: Path) -> tuple[list[Envelope], State]:
    """The events of a run, and its state."""
    run = noetl.run(HELLO, home=home)
    return list(run.events()), run.replay()


def test_what_holds_is_proven(told: tuple[list[Envelope], State]) -> None:
    events, state = told
    proof = prove(state.execution_id, events, state)
    assert (proof.ok, proof.events, proof.problems) == (True, len(events), [])


def test_an_event_survives_the_way_through_json(told: tuple[list[Envelope], State]) -> None:
    for event in told[0]:
        sent = msgspec.json.encode(with_text_ids(msgspec.to_builtins(event))).decode()
        assert envelope_of(sent) == event


def test_a_changed_event_is_named(told: tuple[list[Envelope], State]) -> None:
    events, state = told
    events[4] = msgspec.structs.replace(events[4], status="CANCELLED")
    proof = prove(state.execution_id, events, state)
    assert not proof.chain_ok
    assert proof.first_bad_event == events[4].event_id


def test_a_lost_event_is_found(told: tuple[list[Envelope], State]) -> None:
    events, state = told
    lost = events.pop(3)
    assert prove(state.execution_id, events, state).first_bad_event == events[3].event_id != lost.event_id


def test_a_state_that_does_not_follow_is_named(told: tuple[list[Envelope], State]) -> None:
    events, state = told
    other = msgspec.structs.replace(state, checksum="0" * 64, checksums={**state.checksums, "commands": "0" * 64})
    proof = prove(state.execution_id, events, other)
    assert (proof.chain_ok, proof.parity) == (True, False)
    assert proof.problems == ["the server's state differs from what its events give, in commands"]


def test_what_is_no_event_is_said() -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        envelope_of('{"event_id": "x"}')
