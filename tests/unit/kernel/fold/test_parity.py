from __future__ import annotations

from typing import Any

import pytest

from noetl.kernel.fold.parity import compare

Rows = dict[str, dict[str, Any]]


def differences(live: Rows, replayed: Rows) -> list[tuple[str, str, Any, Any]]:
    return [(found.row, found.field, found.live, found.replayed) for found in compare("commands", live, replayed)]


def test_equal_rows_have_no_differences() -> None:
    rows: Rows = {"1": {"status": "RUNNING", "result": {"a": [1, 2.5, None]}}}
    assert differences(rows, {"1": {"result": {"a": [1, 2.5, None]}, "status": "RUNNING"}}) == []


def test_a_changed_field_is_named_with_both_values() -> None:
    assert differences({"1": {"status": "FAILED", "step": "a"}}, {"1": {"status": "COMPLETED", "step": "a"}}) == [
        ("1", "status", "FAILED", "COMPLETED")
    ]


def test_a_field_on_one_side_only_is_absent_on_the_other() -> None:
    assert differences({"1": {"a": 1}}, {"1": {"b": None}}) == [
        ("1", "a", 1, "(absent)"),
        ("1", "b", "(absent)", None),
    ]


def test_a_row_on_one_side_only_is_one_difference() -> None:
    assert differences({"1": {"a": 1}}, {"2": {"a": 1}}) == [
        ("1", "*", "row", "(absent)"),
        ("2", "*", "(absent)", "row"),
    ]


@pytest.mark.parametrize(
    ("live", "replayed"),
    [(1, True), (1, 1.0), (0, False), ({"a": 1}, {"a": True}), ([1], [1.0]), ("(absent)", None), (None, 0)],
)
def test_what_python_calls_equal_may_still_differ_in_bytes(live: object, replayed: object) -> None:
    assert differences({"1": {"a": live}}, {"1": {"a": replayed}}) == [("1", "a", live, replayed)]


@pytest.mark.parametrize(("live", "replayed"), [({"a": 1, "b": 2}, {"b": 2, "a": 1}), (-0.0, 0.0), ((1,), [1])])
def test_what_has_the_same_bytes_does_not_differ(live: object, replayed: object) -> None:
    assert differences({"1": {"a": live}}, {"1": {"a": replayed}}) == []


def test_text_that_reads_absent_is_not_absent() -> None:
    assert differences({"1": {"a": "(absent)"}}, {"1": {}}) == [("1", "a", "(absent)", "(absent)")]


def test_a_difference_reads_as_a_sentence() -> None:
    (found,) = compare("frames", {"9": {"rows": 5}}, {"9": {"rows": 6}})
    assert str(found) == "frames row 9, field 'rows': live 5, replayed 6"
