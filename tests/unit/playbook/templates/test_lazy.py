"""Templates over values that are decoded on demand: as rich as over plain data, and no more decoded than is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from noetl.kernel.lazy import Composite, LazyMapping
from noetl.payloads import arrow, tables
from noetl.payloads.tables import Rows, TableValue
from noetl.playbook.templates import (
    ResultView,
    TemplateError,
    TemplateLimit,
    Views,
    compile,  # noqa: A004 - that is what it is called
    condition,
    render,
    render_code,
    render_or_keep,
    render_strict,
    render_task_set,
)

SMALL = TableValue(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "ok": [True, None, False]}))
ROWS = SMALL.plain()["rows"]
LARGE = TableValue(pa.table({"id": pa.array(range(10_000_000), pa.int32())}))


@pytest.fixture
def names() -> dict[str, Any]:
    """A table as a step's result, as a task's, inside of a pipeline's result, and by itself."""
    pipeline = Composite({"status": "ok", "rows": SMALL["rows"], "results": {"t": SMALL}})
    return {
        "s": ResultView(SMALL),
        "results": Views({"t": ResultView(SMALL)}),
        "p": ResultView(pipeline),
        "t": SMALL,
        "big": ResultView(LARGE),
    }


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were decoded, each time."""
    seen: list[int] = []
    real = arrow.rows_of

    def counting(table: Any) -> Any:
        seen.append(table.num_rows)
        return real(table)

    monkeypatch.setattr(tables, "rows_of", counting)
    return seen


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ s.row_count }}", 3),
        ("{{ s.columns }}", ["id", "name", "ok"]),
        ("{{ s.columns[1] }}", "name"),
        ("{{ s.rows[1].name }}", "b"),
        ("{{ s.rows[-1]['name'] }}", "c"),
        ("{{ s.rows[7].name }}", None),
        ("{{ s.data.rows[1].name }}", "b"),
        ("{{ s.rows | length }}", 3),
        ("{{ s.rows | first }}", ROWS[0]),
        ("{{ (s.rows | last).id }}", 3),
        ("{{ s.rows[1:] }}", ROWS[1:]),
        ("{{ s.rows[::-1] }}", ROWS[::-1]),
        ("{{ s.rows[:2] | map(attribute='id') | list }}", [1, 2]),
        ("{{ s.rows | sum(attribute='id') }}", 6),
        ("{{ s.rows | selectattr('ok') | list }}", ROWS[:1]),
        ("{{ s.rows | reverse | first }}", ROWS[2]),
        ("{{ s.rows + [1] }}", [*ROWS, 1]),
        ("{{ s.rows == t.rows }}", True),
        ("{{ s.rows[0] in t.rows }}", True),
        ("{{ t == s }}", True),
        ("{{ 'rows' in s }}", True),
        ("{{ t is mapping and t.rows is sequence and t.rows is iterable }}", True),
        ("{{ t.rows is string }}", False),
        ("{{ s.get('row_count') }}", 3),
        ("{{ s.keys() }}", ["columns", "rows", "row_count"]),
        ("{{ s.status }}", "ok"),
        ("{{ s.nothing is defined }}", False),
        ("{{ s }}", SMALL.plain()),
        ("{{ t }}", SMALL.plain()),
        ("{{ t or 1 }}", SMALL.plain()),
        ("{{ s.rows }}", ROWS),
        ("{{ {'x': t.rows, 'y': [t]} }}", {"x": ROWS, "y": [SMALL.plain()]}),
        ("{{ results }}", {"t": SMALL.plain()}),
        ("{{ results.t }}", SMALL.plain()),
        ("{{ p.rows[0] }}", ROWS[0]),
        ("{{ p.results }}", {"t": SMALL.plain()}),
        ("{{ p }}", {"status": "ok", "rows": ROWS, "results": {"t": SMALL.plain()}}),
        ("{% for row in s.rows %}{{ loop.index }}{{ row.name }}{{ '' if loop.last else ',' }}{% endfor %}", "1a,2b,3c"),
        ("{{ s.rows | tojson }}", '[{"id": 1, "name": "a", "ok": true}, {"id": 2, "name": "b", "ok": null}, '
                                  '{"id": 3, "name": "c", "ok": false}]'),
        ("n={{ s.columns }}", 'n=["id", "name", "ok"]'),
        ("{{ s.rows[0] }}!", '{"id": 1, "name": "a", "ok": true}!'),
    ],
)  # fmt: skip
def test_a_table_reads_like_the_json_it_stands_for(text: str, value: Any, names: dict[str, Any]) -> None:
    assert render(text, names) == value


@pytest.mark.parametrize(
    "text", ["{{ t.rows[1].name }}", "{{ t.rows[-1] }}", "{{ t.rows | last }}", "{{ t.rows[5:6] }}"]
)
def test_only_what_is_read_is_decoded(text: str, decoded: list[int]) -> None:
    render(text, {"t": LARGE})
    assert decoded == [1]


@pytest.mark.parametrize(
    "text", ["{{ t.rows | length }}", "{{ t.row_count }}", "{{ t.columns }}", "{{ t.rows[4:] | length }}"]
)
def test_counting_decodes_nothing(text: str, decoded: list[int]) -> None:
    render(text, {"t": LARGE})
    assert decoded == []


@pytest.mark.parametrize(
    "text",
    [
        "{{ big }}!",
        "{{ big.rows }}!",
        "{{ big.rows }}",
        "{{ big }}",
        "{{ big.rows | list }}",
        "{{ big.rows | map(attribute='id') | list }}",
        "{{ big.rows | sum(attribute='id') }}",
        "{{ big.rows | reverse | list }}",
        "{{ big.rows | sort(attribute='id') }}",
        "{{ big.rows | join(',') }}",
        "{{ big.rows | tojson }}",
        "{{ big | tojson }}",
        "{{ big.rows + [] }}",
        "{{ big.rows == big.rows }}",
        "{{ 5 in big.rows }}",
        "{{ big.rows[::2] }}",
        "{{ big.rows[1:] }}",
        "{{ [big.rows, 1] }}",
        "{{ {'a': big} }}",
        "{{ '%s' % big.rows }}",
        "{{ 'x' ~ big.rows }}",
        "{% for row in big.rows %}{{ row.id }}{% endfor %}",
        "{{ big.rows | max(attribute='id') }}",
        "{{ big | dictsort }}",
        "{{ big.rows | upper }}",
    ],
)
def test_a_table_that_is_too_large_is_not_turned_into_anything(
    text: str, names: dict[str, Any], decoded: list[int]
) -> None:
    with pytest.raises(TemplateLimit):
        render(text, names)
    assert sum(decoded) <= 200_000  # a loop has its passes


def test_the_message_says_what_to_do(names: dict[str, Any]) -> None:
    with pytest.raises(TemplateError, match="too much to be turned into JSON") as caught:
        render("{{ big }}", names)
    assert "to a python or duckdb task" in str(caught.value)


def test_conditions_ask_for_emptiness_only(decoded: list[int]) -> None:
    assert condition("{{ t.rows }}", {"t": LARGE}) == (True, None)
    assert condition("{{ t }}", {"t": LARGE}) == (True, None)
    assert condition("{{ t.rows }}", {"t": TableValue(pa.table({"a": pa.array([], pa.int8())}))}) == (False, None)
    assert decoded == []


def test_a_table_is_handed_over_as_one_to_who_asks_for_it(names: dict[str, Any]) -> None:
    kept = render_or_keep(
        {"t": "{{ s }}", "b": "{{ big }}", "r": "{{ s.rows }}", "n": ["{{ t }}"]}, names, lazy=True
    ).value
    assert kept["t"] is SMALL
    assert kept["b"] is LARGE
    assert isinstance(kept["r"], Rows)
    assert kept["n"] == [SMALL]
    assert isinstance(compile("{{ p | default(1) }}").render(names, lazy=True), LazyMapping)


def test_other_fields_get_json(names: dict[str, Any]) -> None:
    assert render_strict("{{ s }}", names) == SMALL.plain()
    assert render_or_keep("{{ s }}", names).value == SMALL.plain()
    assert render_code("{{ s.rows[0] }}", names) == '{"id": 1, "name": "a", "ok": true}'


def test_the_second_face_of_a_table() -> None:
    assert render_task_set("{{ output }}", {}, SMALL) == SMALL.plain()
    assert render_task_set("{{ output }}", {}, SMALL, lazy=True) is SMALL
