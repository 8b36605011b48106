"""Changes of `ctx` from outside, as the fold reads them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope
from noetl.kernel.fold import State, apply
from tests.golden.stories.others import patched
from tests.scribe import START, Scribe


@pytest.fixture
def events() -> list[Envelope]:
    scribe = Scribe(now=START)
    (root,) = patched(scribe)
    return scribe.of_root(root)


def folded(events: list[Envelope]) -> Any:
    state = State("execution")
    for event in events:
        apply(state, event)
    return state.root


def test_what_is_unset_goes_and_what_is_set_comes(events: list[Envelope]) -> None:
    row = folded(events)
    assert row.ctx == {"rate": 1.08, "note": "by hand", "approved_by": "ada"}
    assert row.unknown == {}
    assert (row.status, row.error["code"]) == ("FAILED", "FINALIZED")


@pytest.mark.parametrize("unset", ["ctx.a", {"ctx.a": 1}, [1], None])
def test_a_list_of_names_that_is_none_is_an_error(events: list[Envelope], unset: Any) -> None:
    place = next(n for n, event in enumerate(events) if event.event_type == "ctx.patched")
    bad = msgspec.structs.replace(events[place], payload={"unset": unset})
    with pytest.raises(InvalidEvent, match=f"event {bad.event_id}, field 'payload.unset'"):
        folded([*events[:place], bad])
