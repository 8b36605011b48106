from __future__ import annotations

import pytest

from noetl.kernel.fold.state import SURFACES_BY_CATEGORY, State


@pytest.mark.parametrize("category", sorted(SURFACES_BY_CATEGORY))
def test_an_empty_state_has_every_surface_and_no_rows(category: str) -> None:
    state = State(category)
    assert list(state.bundle()) == list(SURFACES_BY_CATEGORY[category])
    assert [state.rows(surface) for surface in state.surfaces] == [[] for _ in state.surfaces]


def test_the_root_is_the_one_row_of_the_first_surface() -> None:
    state = State("tenant")
    state.root.status = "ACTIVE"
    assert [(key, row.as_dict()) for key, row in state.rows("tenant")] == [("root", {"status": "ACTIVE"})]


def test_rows_come_in_order_of_their_number() -> None:
    state = State("execution")
    for key in (10, 9, 100):
        state.surfaces["commands"].edit(key)
    assert [key for key, _ in state.rows("commands")] == ["9", "10", "100"]


def test_a_loaded_row_finds_its_own_key() -> None:
    state = State("execution")
    state.load("business_objects", b'{"object_id":"order/7"}', "test")
    state.load("commands", b'{"command_id":7,"status":"RUNNING"}', "test")
    assert [*state.surfaces["business_objects"].rows, *state.surfaces["commands"].rows] == ["order/7", 7]
    assert state.take_changed() == []


def test_a_row_written_before_a_field_existed_is_read() -> None:
    state = State("execution")
    state.load("frames", b'{"frame_id":9}', "test")
    assert state.surfaces["frames"].rows[9].status == "PENDING"
