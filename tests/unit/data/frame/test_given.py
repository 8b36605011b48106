"""What a frame runs over: rows at hand are no table before somebody wants one."""

from __future__ import annotations

import pytest

from noetl.data.frame import given as module
from noetl.data.frame.given import Given
from noetl.data.frame.output import claimed_table
from noetl.kernel import canonical

ROWS = ({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": None})


def test_of_rows_at_hand_no_table_is_made_until_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "claimed_table", lambda _: pytest.fail("nobody has asked for a table"))
        given = Given.of_rows(ROWS)
        assert given.count == 3
        assert given.rows == list(ROWS)
        assert given.size == len(canonical.encode(list(ROWS)))
        assert given.is_exact
        assert given.parents is None
    assert given.table.equals(claimed_table(ROWS))


def test_the_first_of_rows_at_hand_are_the_first_of_their_table() -> None:
    first = Given.of_rows(ROWS).first(2)
    assert first.count == 2
    assert first.rows == list(ROWS[:2])
    assert Given.of_rows(ROWS).is_below(1 << 20)
