from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from noetl.errors import Unavailable
from noetl.playbook import templates
from noetl.playbook.templates import EventName, External, ResultView, Views

ROWS = {"rows": [{"c": 1}, {"c": 2}], "command_0": {"rows": [{"c": 1}]}, "results": {"t": {"f": 3}}, "f": 4}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ s }}", ROWS),
        ("{{ s.f }}", 4),
        ("{{ s.data.f }}", 4),
        ("{{ s.rows[0].c }}", 1),
        ("{{ s.data.rows }}", ROWS["rows"]),
        ("{{ s.command_0.rows[0].c }}", 1),
        ("{{ s.data.command_0.rows }}", [{"c": 1}]),
        ("{{ s.context.rows }}", ROWS["rows"]),
        ("{{ s.results.t.f }}", 3),
        ("{{ s.status }}", "ok"),
        ("{{ s['status'] }}", "ok"),
        ("{{ s.get('status') }}", "ok"),
        ("{{ s.result }}", ROWS),
        ("{{ s.result.result }}", ROWS),
        ("{{ s._ref is defined }}", False),
        ("{{ s._store is defined or s._preview is defined }}", False),
        ("{{ s | length }}", 4),
        ("{{ s == s.data }}", True),
        ("{{ 'f' in s }}", True),
        ("{{ 'data' in s }}", False),
        ("{{ s.keys() }}", list(ROWS)),
        ("{{ s | list }}", list(ROWS)),
        ("{{ [s.data][0].f }}", 4),
        ("{{ [s] }}", [ROWS]),
        ("{{ {'all': s} }}", {"all": ROWS}),
        ("{% for k in s %}{{ k }} {% endfor %}", "rows command_0 results f "),
        ("{{ s.gone }}", None),
        ("{{ s.gone | default(1) }}", 1),
        ("{{ true if s else false }}", True),
    ],
)
def test_a_result_is_read_by_key_and_by_alias(text: str, value: Any) -> None:
    assert templates.render(text, {"s": ResultView(ROWS)}) == value


def test_own_keys_win_over_aliases() -> None:
    view = ResultView({"data": 1, "result": 2, "context": 3, "status": "shipped", "items": 4, "get": 5}, "error")
    text = "{{ s.data }}{{ s.result }}{{ s.context }}{{ s.status }}{{ s.items }}{{ s.get }}"
    assert templates.render(text, {"s": view}) == "123shipped45"


def test_aliases_are_not_serialised() -> None:
    names = {"s": ResultView({"f": 1}, "error")}
    assert templates.render("{{ s | tojson }}", names) == '{"f": 1}'
    assert templates.render(">{{ s }}", names) == '>{"f": 1}'
    assert templates.render("{{ s.status }}", names) == "error"


@pytest.mark.parametrize("value", [[1, 2], "text", 3, None, True])
def test_a_result_that_is_no_mapping_has_the_aliases_too(value: Any) -> None:
    names = {"s": ResultView(value)}
    assert templates.render("{{ s }}", names) == value
    assert templates.render("{{ s.data }}", names) == value
    assert templates.render("{{ s.status }}", names) == "ok"
    assert templates.render("{{ s.gone }}", names) is None


def test_a_result_that_is_a_list_is_indexed_and_sliced() -> None:
    assert templates.render("{{ [s[0], s[-1], s[1:], s | sum, s | length] }}", {"s": ResultView([1, 2, 3])}) == [
        1, 3, [2, 3], 6, 3,
    ]  # fmt: skip


def test_a_key_that_an_http_result_lacks_is_looked_up_in_its_body() -> None:
    body = {"id": 7, "status": "shipped", "url": "inner"}
    names = {"r": ResultView({"status_code": 200, "url": "outer", "data": body, "body": body}, http=True)}
    assert templates.render("{{ [r.id, r.url, r.data.url, r.status, r.status_code] }}", names) == [
        7, "outer", "inner", "shipped", 200,
    ]  # fmt: skip
    assert templates.render("{{ r.result.id }}", names) == 7


def test_an_http_result_without_a_mapping_as_body_has_its_outcome_as_status() -> None:
    names = {"r": ResultView({"status_code": 500, "data": "oops", "body": "oops"}, "error", http=True)}
    assert templates.render("{{ [r.status, r.gone] }}", names) == ["error", None]


class Store:
    """Counts how often the object is fetched."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.reads = 0

    def resolve(self) -> Any:
        self.reads += 1
        return self.value


@pytest.fixture
def store() -> Store:
    return Store({"count": 2, "rows": [{"c": 1}, {"c": 2}], "inner": {"deep": True}})


@pytest.fixture
def names(store: Store) -> dict[str, Any]:
    external = External(ref="noetl://r", store="disk", preview='{"count"', resolve=store.resolve)
    return {"s": ResultView({"count": 2}, external=external)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ s.count }}", 2),
        ("{{ s._ref }}", "noetl://r"),
        ("{{ s._store }}", "disk"),
        ("{{ s._preview }}", '{"count"'),
        ("{{ s._ref is defined }}", True),
    ],
)
def test_what_is_inline_is_read_without_a_fetch(text: str, value: Any, names: dict[str, Any], store: Store) -> None:
    assert templates.render(text, names) == value
    assert store.reads == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ s.rows[1].c }}", 2),
        ("{{ s.data.rows | length }}", 2),
        ("{{ s.inner.deep }}", True),
        ("{{ s.status }}", "ok"),
        ("{{ s.gone | default('no') }}", "no"),
        ("{{ s.rows + s.rows | length }}", None),
    ],
)
def test_any_other_field_resolves_the_object_once(text: str, value: Any, names: dict[str, Any], store: Store) -> None:
    if value is not None:
        assert templates.render(text, names) == value
    assert templates.render("{{ s }}", names) == store.value
    assert templates.render("{{ s.rows | length }}", names) == 2
    assert store.reads == 1


def test_a_store_that_does_not_answer_is_no_fault_of_the_template() -> None:
    def fail() -> Any:
        raise Unavailable("the store is down")

    names = {"s": ResultView({}, external=External("r", "disk", "", fail))}
    for act in (
        lambda: templates.render("{{ s.x }}", names),
        lambda: templates.render("{{ s.x + 1 }}", names),
        lambda: templates.condition("{{ s.x > 1 }}", names),
        lambda: templates.render_or_keep({"a": "{{ s.x ~ 1 }}"}, names),
        lambda: templates.render_code("print({{ s.x }})", names),
    ):
        with pytest.raises(Unavailable):
            act()


def test_views_inside_of_a_mapping_are_read_and_handed_over() -> None:
    names = {"results": Views({"t": ResultView({"f": 1}), "n": 2})}
    assert templates.render("{{ results.t.data.f }}", names) == 1
    assert templates.render("{{ results['t'].status }}", names) == "ok"
    assert templates.render("{{ results }}", names) == {"t": {"f": 1}, "n": 2}
    assert templates.render(">{{ results }}", names) == '>{"t": {"f": 1}, "n": 2}'
    assert templates.render("{{ results | tojson }}", names) == '{"t": {"f": 1}, "n": 2}'


def test_any_mapping_may_stand_for_a_dict() -> None:
    names = MappingProxyType({"m": MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})})
    assert templates.render("{{ m }}", names) == {"a": {"b": [1, 2]}}
    assert templates.render("{{ m.a.b[1] + m['a'].get('b')[0] }}", names) == 3
    assert templates.render(">{{ m }}{{ m | tojson }}", names) == '>{"a": {"b": [1, 2]}}{"a": {"b": [1, 2]}}'


@pytest.mark.parametrize(
    ("name", "equal", "unequal"),
    [
        ("call.done", ["call.done", "step.done"], ["call.error", "step.failed", "loop.done", 1]),
        ("call.error", ["call.error", "step.failed"], ["call.done", "step.done"]),
        ("loop.done", ["loop.done"], ["step.done", "call.done"]),
    ],
)
def test_the_name_of_an_event_equals_its_older_alias(name: str, equal: list[Any], unequal: list[Any]) -> None:
    names = {"event": {"name": EventName(name)}, "equal": equal, "unequal": unequal}
    for other in equal:
        assert templates.render(
            "{{ event.name == x and x == event.name and event.name in [x] }}", {**names, "x": other}
        )
    for other in unequal:
        assert templates.render(
            "{{ event.name != x and x != event.name and event.name not in [x] }}", {**names, "x": other}
        )
    assert type(templates.render("{{ event.name }}", names)) is str
    assert templates.render("{{ event.name | upper }} {{ event.name }}", names) == f"{name.upper()} {name}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ m.key }}", "v"),
        ("{{ m['key'] }}", "v"),
        ("{{ m.get('key') }}", "v"),
        ("{{ m.get('gone') }}", None),
        ("{{ m.get('gone', 'd') }}", "d"),
        ("{% for k in m %}{{ k }},{% endfor %}", "key,items,keys,values,get,"),
        ("{{ 'key' in m }}", True),
        ("{{ 'gone' not in m }}", True),
        ("{{ m | length }}", 5),
        ("{{ m.items }}", 1),
        ("{{ m.keys }}", 2),
        ("{{ m.values }}", 3),
        ("{{ plain.items() | length }}", 1),
        ("{% for k, v in plain.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"),
        ("{{ plain.keys() }}", ["a"]),
        ("{{ plain.values() }}", [1]),
    ],
)
def test_mappings(text: str, value: Any) -> None:
    names: dict[str, dict[str, Any]] = {
        "m": {"key": "v", "items": 1, "keys": 2, "values": 3, "get": None},
        "plain": {"a": 1},
    }
    if ".get(" in text:
        names["m"].pop("get")
    assert templates.render(text, names) == value
