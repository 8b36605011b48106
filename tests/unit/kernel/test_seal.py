from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import InvalidEvent
from noetl.kernel.seal import SEALING_TYPES, seal_in, seal_of_payload
from tests.unit.kernel.drafts import envelope

SEAL: dict[str, Any] = {
    "stream_id": "execution/4101/stage/77",
    "root": "ab" * 32,
    "count": 3,
    "first_event_id": 1,
    "last_event_id": 9,
    "first_position": 1,
    "last_position": 5,
    "peaks": ["cd" * 32, "ef" * 32],
    "final": True,
}


def test_only_two_types_of_event_seal() -> None:
    assert set(SEALING_TYPES) == {"stage.closed", "stream.sealed"}


@pytest.mark.parametrize("event_type", sorted(SEALING_TYPES))
def test_a_seal_is_read_from_an_event_that_seals(event_type: str) -> None:
    seal = seal_in(envelope(event_type, payload={"seal": SEAL}))
    assert seal is not None
    assert (seal.stream_id, seal.count, seal.final, seal.peaks) == (
        SEAL["stream_id"], 3, True, ("cd" * 32, "ef" * 32),
    )  # fmt: skip


def test_a_seal_is_not_final_unless_it_says_so() -> None:
    seal = seal_of_payload("stream.sealed", {"seal": {name: SEAL[name] for name in SEAL if name != "final"}})
    assert seal is not None
    assert not seal.final


def test_other_events_do_not_seal_whatever_they_carry() -> None:
    assert seal_in(envelope("frame.committed", payload={"seal": SEAL})) is None


def test_a_stage_may_close_without_a_seal() -> None:
    assert seal_in(envelope("stage.closed")) is None


@pytest.mark.parametrize("name", ["stream_id", "root", "count", "first_event_id", "last_position"])
def test_a_seal_without_a_part_names_event_and_field(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"missing required field `{name}`") as refused:
        seal_in(envelope("stream.sealed", payload={"seal": {part: SEAL[part] for part in SEAL if part != name}}))
    assert (refused.value.field, refused.value.event_id) == ("payload.seal", 500)


@pytest.mark.parametrize(("name", "value"), [("count", "3"), ("peaks", "cd"), ("final", 1), ("root", None)])
def test_a_part_of_the_wrong_kind_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidEvent, match=rf"\$\.{name}"):
        seal_of_payload("stage.closed", {"seal": {**SEAL, name: value}})
