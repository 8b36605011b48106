"""Tables that are handed on as they are."""

from __future__ import annotations

import pyarrow as pa

from noetl.payloads.passed import PassedTables

TABLE = pa.table({"a": [1]})
MINUTE = 60 * 1_000_000


def test_a_table_is_given_to_everybody_who_asks() -> None:
    passed = PassedTables(100)
    assert passed.put("a", TABLE, 60, now=0)
    assert passed.get("a", now=1) is passed.get("a", now=2) is TABLE
    assert passed.get("b", now=2) is None


def test_the_budget_holds_and_the_last_used_stay() -> None:
    passed = PassedTables(100)
    for name in "ab":
        assert passed.put(name, TABLE, 50, now=0)
    passed.get("a", now=1)
    assert passed.put("c", TABLE, 50, now=2)
    assert [name for name in "abc" if passed.get(name, now=3) is not None] == ["a", "c"]
    assert not passed.put("d", TABLE, 101, now=3)
    assert passed.bytes_in_use == 100


def test_a_table_that_is_put_again_counts_once() -> None:
    passed = PassedTables(100)
    passed.put("a", TABLE, 60, now=0)
    passed.put("a", TABLE, 60, now=0)
    assert passed.bytes_in_use == 60


def test_a_table_that_nobody_asks_for_is_let_go() -> None:
    passed = PassedTables(100)
    passed.put("old", TABLE, 10, now=0)
    passed.put("used", TABLE, 10, now=0)
    passed.get("used", now=4 * MINUTE)
    passed.sweep(now=6 * MINUTE)
    assert passed.get("old", now=6 * MINUTE) is None
    assert passed.get("used", now=6 * MINUTE) is TABLE
    passed.clear()
    assert passed.bytes_in_use == 0
