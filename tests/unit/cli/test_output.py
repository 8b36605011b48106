from __future__ import annotations

from noetl.cli.output import leaves, readable


def test_control_characters_of_an_event_are_shown_and_not_obeyed() -> None:
    assert readable("\x1b]0;title\x07\x9b31m\n") == "\\x1b]0;title\\x07\\x9b31m\\x0a"


def test_what_is_not_text_is_shown_as_json() -> None:
    assert readable({"b": 1, "a": [None, True, "\x1b"]}) == '{"a":[null,true,"\\u001b"],"b":1}'
    assert readable(None) == "-"


def test_a_long_value_is_cut_to_its_width() -> None:
    assert readable("x" * 50, 10) == "x" * 9 + "…"
    assert readable("x" * 10, 10) == "x" * 10


def test_two_mappings_are_told_apart_by_the_fields_inside() -> None:
    was, now = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": 4}
    assert list(leaves("ctx", was, now)) == [("ctx.a.c", 2, 5), ("ctx.d", 3, None), ("ctx.e", None, 4)]


def test_values_that_only_python_takes_as_equal_differ() -> None:
    assert list(leaves("row", {"a": 1}, {"a": True})) == [("row.a", 1, True)]


def test_a_value_against_a_mapping_is_one_difference() -> None:
    assert list(leaves("result", None, {"a": 1})) == [("result", None, {"a": 1})]
