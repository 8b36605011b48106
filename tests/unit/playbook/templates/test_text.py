from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from noetl.playbook import templates
from noetl.playbook.templates import TemplateFailed
from tests.unit.playbook.templates.strategies import values


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ({"a": 1, "b": [True, None]}, '{"a": 1, "b": [true, null]}'),
        ([1, "x"], '[1, "x"]'),
        (None, "None"),
        (True, "True"),
        (False, "False"),
        (1, "1"),
        (1.5, "1.5"),
        ("text", "text"),
        ("<a> & 'b'", "<a> & 'b'"),
        ({"u": "é"}, '{"u": "é"}'),
        (Decimal("1.10"), "1.10"),
        (date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_values_print(value: Any, printed: str) -> None:
    names = {"x": value}
    for text in (">{{ x }}", ">{{ (x) }}", "{{ '>' ~ x }}", "{{ '>%s' % (x,) }}", "{{ '>{}'.format(x) }}"):
        assert templates.render(text, names) == ">" + printed
    assert templates.render("{{ [x, x] | join('|') }}", names) == f"{printed}|{printed}"


@settings(deadline=None)
@given(values)
def test_tojson_is_plain_json_and_a_string(value: Any) -> None:
    rendered = templates.render("{{ x | tojson }}", {"x": value})
    assert type(rendered) is str
    assert json.loads(rendered) == value


def test_tojson_escapes_nothing_for_html() -> None:
    assert templates.render("{{ x | tojson }}", {"x": "<b>'&'"}) == "\"<b>'&'\""


def test_tojson_writes_dates_as_text_and_decimals_as_numbers() -> None:
    value = {
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "on": date(2026, 1, 2),
        "n": Decimal("12345678901234567.89"),
    }
    assert (
        templates.render("{{ x | tojson }}", {"x": value})
        == '{"at": "2026-01-02T03:04:05+00:00", "on": "2026-01-02", "n": 12345678901234567.89}'
    )


def test_tojson_can_indent() -> None:
    assert templates.render("{{ [1] | tojson(indent=2) }}", {}) == "[\n  1\n]"


def test_tojson_makes_valid_sql_in_both_quotings() -> None:
    names = {"x": {"name": "O'Neil", "q": '"'}}
    quoted = templates.render_strict("SELECT '{{ x | tojson | replace(\"'\", \"''\") }}'::jsonb", names)
    dollar = templates.render_strict("SELECT $${{ x | tojson }}$$::jsonb", names)
    assert json.loads(quoted[len("SELECT '") : -len("'::jsonb")].replace("''", "'")) == names["x"]
    assert json.loads(dollar[len("SELECT $$") : -len("$$::jsonb")]) == names["x"]


def test_what_has_no_json_form_is_an_error() -> None:
    with pytest.raises(TemplateFailed, match="no JSON form"):
        templates.render("{{ [x] | tojson }}", {"x": float("nan")})


def test_an_object_of_python_has_no_text_and_is_no_value() -> None:
    for text in ("{{ x }}", "a{{ x }}", "{{ (x) }}", "{{ [x] }}", "{{ x | string }}"):
        with pytest.raises(TemplateFailed):
            templates.render(text, {"x": object()})
