"""What is prepared renders as what is not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.payloads.tables import TableValue
from noetl.playbook import templates
from noetl.playbook.templates import ALONE, Renders, TemplateError
from tests.unit.playbook.templates.strategies import names, scalars

_written = st.sampled_from(
    ["{{ a }}", "x {{ a }} {{ b.a }}", "{{ a | int }}", "{{ ctx.items }}", "{{ a", "{% x %}", "{{ a | upper }}",
     "{{ 1 / 0 }}", "{{ a.b.c }}!", "{{ b | tojson }}", "plain", "{{ nothing }}", "{{ a == 'x' }}"]
)  # fmt: skip
_fields = st.recursive(
    _written | scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("pqr"), inner, max_size=3),
    max_leaves=8,
)


def outcome(render: Any) -> Any:
    problems: list[str] = []
    try:
        value = render(problems)
    except TemplateError as error:
        return type(error), str(error), problems
    return type(value), value, problems


def unexpected(problem: TemplateError) -> None:
    raise AssertionError(problem)


def of(render: Renders, known: dict[str, Any]) -> Any:
    return outcome(lambda problems: render(known, ALONE, lambda problem: problems.append(str(problem))))


@settings(deadline=None, max_examples=300)
@given(_fields, st.lists(names, min_size=1, max_size=3))
def test_a_value_gives_the_same_prepared_or_not(value: Any, known: list[dict[str, Any]]) -> None:
    strict, kept = templates.prepared_strict(value), templates.prepared_or_keep(value)
    for one in known:
        assert of(strict, one) == outcome(lambda _, one=one: templates.render_strict(value, one))

        def keep(problems: list[str], one: dict[str, Any] = one) -> Any:
            found = templates.render_or_keep(value, one)
            problems += map(str, found.problems)
            return found.value

        assert of(kept, one) == outcome(keep)


@given(_written, names)
def test_code_gives_the_same_prepared_or_not(text: str, known: dict[str, Any]) -> None:
    assert of(templates.prepared_code([text]), known) == outcome(lambda _: [templates.render_code(text, known)])


def test_what_one_rendering_gives_is_not_what_the_next_gives() -> None:
    render = templates.prepared_or_keep({"a": [1, {"b": 2}], "c": "{{ x }}"})
    first = render({"x": 1}, ALONE, unexpected)
    first["a"][1]["b"] = 3
    first["a"].append(4)
    assert render({"x": 5}, ALONE, unexpected) == {"a": [1, {"b": 2}], "c": 5}


def test_a_table_stays_one_where_that_is_asked_for() -> None:
    table = TableValue(pa.table({"n": [1, 2]}))
    assert templates.prepared_or_keep({"t": "{{ a }}"}, lazy=True)({"a": table}, ALONE, unexpected)["t"] is table
    assert templates.prepared_or_keep("{{ a.n }}")({"a": table}, ALONE, unexpected) is None
