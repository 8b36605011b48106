"""Hostile templates. Effort is counted in calls and bytes, not in seconds: the count is the same on every machine."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from noetl.playbook import templates
from noetl.playbook.templates import (
    Host,
    Limits,
    ResultView,
    TemplateFailed,
    TemplateLimit,
    TemplateSyntax,
    TemplateUndefined,
)
from tests.unit.playbook.templates.attacks import BOMBS, ESCAPES

WORK = 50_000
MAX_CALLS = 6 * WORK  # counting what Jinja needs to read the largest template that it is given
MAX_BYTES = 1024 * WORK

LENDING = Host(token=str, encrypt_secret=str)

# What Python objects print as; nothing of it may come out of a template.
TRACES = ("<class", "<function", "<built-in", "object at", "<module", "__globals__", "mappingproxy", "environ", "root:")


def make_names() -> dict[str, Any]:
    return {
        "ctx": {"page": 1},
        "rows": [{"a": 1}, {"a": 2}],
        "step": ResultView({"x": 1}),
        "long": "a" * 100_000,
        "large": list(range(50_000)),
        "larger": list(range(50_000)),
    }


@contextmanager
def bounded_effort() -> Iterator[None]:
    """Fail if the block makes more calls, or holds more memory, than a rendering may."""
    calls = 0

    def count(_: Any, kind: str, __: Any) -> None:
        nonlocal calls
        calls += kind in ("call", "c_call")
        if calls > MAX_CALLS:
            raise AssertionError(f"more than {MAX_CALLS} calls")

    gc.collect()
    gc.disable()  # what earlier tests have left behind must not end in here, and be counted
    tracemalloc.start()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        gc.enable()
    assert peak < MAX_BYTES, f"{peak >> 20} MiB"


@pytest.mark.parametrize("attack", ESCAPES)
def test_there_is_no_way_out_of_plain_data(attack: str) -> None:
    names = make_names()
    before = repr({key: value for key, value in names.items() if key != "step"})
    with suppress(TemplateSyntax, TemplateUndefined, TemplateFailed):
        rendered = templates.render(ESCAPES[attack], names)
        assert not any(trace in repr(rendered) for trace in TRACES)
        assert rendered in (None, "", "''", "1", [None], names["rows"])
    assert repr({key: value for key, value in names.items() if key != "step"}) == before


@pytest.mark.parametrize("attack", BOMBS)
def test_more_than_the_limits_is_stopped(attack: str) -> None:
    names = make_names()
    with pytest.raises((TemplateLimit, TemplateSyntax)):
        templates.render(BOMBS[attack], names, host=LENDING)


@pytest.mark.parametrize("attack", BOMBS)
def test_the_effort_is_in_proportion_to_the_limit(attack: str) -> None:
    names = make_names()
    host = replace(LENDING, limits=Limits(work=WORK))
    templates.compile("{{ 1 + 1 }}")
    with bounded_effort(), pytest.raises((TemplateLimit, TemplateSyntax)):
        templates.render(BOMBS[attack], names, host=host)


def test_the_suites_are_large_enough() -> None:
    assert len(ESCAPES) >= 40
    assert len(BOMBS) >= 40


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(iterations=10), "{% for i in range(10) %}{% for j in [1, 2] %}{% endfor %}{% endfor %}"),
        (Limits(work=100), "{% for i in range(50) %}{{ i }}{% endfor %}"),
        (Limits(text=10), "{{ x }}{{ x }}"),
        (Limits(text=10), "{{ x ~ '' }} {{ x }}"),
        (Limits(value=10), "{{ x + x + x }}"),
        (Limits(items=3), "{{ [1, 2] + [3, 4] }}"),
        (Limits(depth=2), "{% macro m(n) %}{{ m(n - 1) if n }}{% endmacro %}{{ m(3) }}"),
    ],
)
def test_the_caller_chooses_the_limits(limits: Limits, text: str) -> None:
    names = {"x": "sixsix"}
    templates.render(text, names)
    with pytest.raises(TemplateLimit) as caught:
        templates.render(text, names, host=Host(limits=limits))
    assert caught.value.code == "TEMPLATE_LIMIT"


def test_ordinary_work_is_well_inside_the_limits() -> None:
    rows = [{"id": n, "name": f"name {n}", "tags": ["a", "b"]} for n in range(10_000)]
    assert (
        len(
            templates.render("{{ rows | selectattr('id', 'ge', 5000) | map(attribute='name') | list }}", {"rows": rows})
        )
        == 5000
    )
    text = "{% for r in rows %}({{ r.id }}, '{{ r.name }}'){% if not loop.last %},{% endif %}{% endfor %}"
    assert templates.render_strict(text, {"rows": rows[:5000]}).count("(") == 5000
    assert len(templates.render("{{ rows + rows }}", {"rows": rows})) == 20_000
    assert len(templates.render("{{ rows | tojson }}", {"rows": rows})) > 500_000
    assert templates.render("{{ rows }}", {"rows": rows}) is rows


def test_limits_count_the_same_every_time() -> None:
    """The border between allowed and refused does not move: not by a unit."""
    text = "{% for r in rows %}{{ r.n ~ 'x' }}{% endfor %}"
    names = {"rows": [{"n": n} for n in range(100)]}

    def fits(work: int) -> bool:
        try:
            templates.render(text, names, host=Host(limits=Limits(work=work)))
        except TemplateLimit:
            return False
        return True

    borders = {next(work for work in range(5000) if fits(work)) for _ in range(3)}
    assert len(borders) == 1
