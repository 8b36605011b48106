"""Ids in documents are text: 63 bits do not survive a reader that has only floats."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.cli.output import with_text_ids


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"event_id": 9007199254740993}, {"event_id": "9007199254740993"}),
        ({"event_id": None, "frame_id": 0}, {"event_id": None, "frame_id": "0"}),
        ({"rows": [{"stage_id": 7}, {"stage_id": 8}]}, {"rows": [{"stage_id": "7"}, {"stage_id": "8"}]}),
        ({"deep": {"er": ({"command_id": 1},)}}, {"deep": {"er": [{"command_id": "1"}]}}),
        ({"tenant_id": "acme", "loop_id": "load/1"}, {"tenant_id": "acme", "loop_id": "load/1"}),
        ({"position": 7, "attempts": 2, "idle": 3}, {"position": 7, "attempts": 2, "idle": 3}),
        ({"is_valid_id": True}, {"is_valid_id": True}),
        ([1, "x", None], [1, "x", None]),
        (17, 17),
    ],
)
def test_ids_become_text_and_nothing_else_does(value: Any, shown: Any) -> None:
    assert with_text_ids(value) == shown


def test_the_original_is_left_alone() -> None:
    value = {"inner": {"event_id": 5}}
    with_text_ids(value)
    assert value == {"inner": {"event_id": 5}}
