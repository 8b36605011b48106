from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings

from noetl.playbook import templates
from noetl.playbook.templates import ResultView, TemplateSyntax
from tests.unit.playbook.templates.strategies import values

NAMES = {
    "ctx": {"page": 1, "flag": False, "nothing": None, "list": [1, 2], "map": {"k": "v"}, "text": "7"},
    "s": ResultView({"f": 1}),
    "x": 5,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ ctx.page + 1 }}", 2),
        ("{{ s._ref is defined }}", False),
        ("{{ ctx.map }}", {"k": "v"}),
        ("{{ ctx.list }}", [1, 2]),
        ("{{ ctx.flag }}", False),
        ("{{ ctx.nothing }}", None),
        ("  {{ ctx.page }}\n", 1),
        ("\n{{ ctx.page + 0 }}\n", 1),
        ("{{- ctx.page -}}", 1),
        ("{{ '}}' }}", "}}"),
        ("{{ {'a': {'b': ctx.page}} }}", {"a": {"b": 1}}),
        ("{{ [ctx.page, ctx.gone] }}", [1, None]),
        ("{{ ctx.page, 2 }}", [1, 2]),
        ("{{ {1: 2} }}", {"1": 2}),
        ("{{ ctx.text }}", "7"),
        ("{{ '[1, 2]' }}", "[1, 2]"),
        ("{{ 'True' }}", "True"),
        ("{{ 7 / 2 }}", 3.5),
        ("{{ 7 // 2 }}", 3),
        ("{{ ctx.list | map('string') }}", ["1", "2"]),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ ctx.map.items() }}", [["k", "v"]]),
    ],
)
def test_one_expression_gives_its_native_value(text: str, value: Any) -> None:
    rendered = templates.render(text, NAMES)
    assert rendered == value
    assert type(rendered) is type(value)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("page {{ ctx.page }}", "page 1"),
        ("{{ ctx.page }}{{ ctx.page }}", "11"),
        ("{{ ctx.page }} {{ ctx.page }}", "1 1"),
        ("{% if true %}1{% endif %}", "1"),
        ("{% set y = 2 %}{{ y }}", "2"),
        ("{{ x }}{# five #}", "5"),
        ("[{{ x }}]", "[5]"),
        ("no template", "no template"),
        ("{# not a template #}", "{# not a template #}"),
        ("", ""),
        ("{{ x }}\r\nnext\r\n{{ x + 1 }}", "5\r\nnext\r\n6"),
        ("{% raw %}{{ x }}{% endraw %}\n", "{{ x }}\n"),
        ("line\n{{ x }}\n\n", "line\n5\n\n"),
    ],
)
def test_any_other_template_is_a_string_and_stays_one(text: str, printed: str) -> None:
    assert templates.render(text, NAMES) == printed


@settings(deadline=None)
@given(values)
def test_a_lookup_hands_over_the_value_itself(value: Any) -> None:
    assert templates.render("{{ x }}", {"x": value}) is value
    assert templates.render("{{ x['y'] }}", {"x": {"y": value}}) is value


@settings(deadline=None)
@given(values)
def test_every_json_value_keeps_its_type_through_an_expression(value: Any) -> None:
    for text in ("{{ (x) }}", "{{ x if true }}", "{{ x | default(1) }}", "{{ [x][0] }}", "{{ none or x }}"):
        rendered = templates.render(text, {"x": value})
        assert rendered == value
        assert type(rendered) is type(value)


def test_text_that_rendering_produced_is_never_rendered_again() -> None:
    names = {"x": "{{ secret }}", "secret": "s"}
    assert templates.render("{{ x }}", names) == "{{ secret }}"
    assert templates.render("a {{ x }} {{ x ~ '' }}", names) == "a {{ secret }} {{ secret }}"
    assert templates.render_value({"k": ["{{ x }}"]}, names) == {"k": ["{{ secret }}"]}


def test_a_template_is_compiled_once() -> None:
    text = "{{ ctx.page + 41 }}"
    assert templates.compile(text) is templates.compile(text)


def test_a_broken_template_raises_each_time() -> None:
    for _ in range(2):
        with pytest.raises(TemplateSyntax):
            templates.compile("{{ broken")


def test_threads_share_templates() -> None:
    results: list[list[int]] = []

    def work(start: int) -> None:
        found = [templates.render(f"{{{{ n + {k} }}}}", {"n": start}) for k in range(60) for _ in range(20)]
        results.append([value - start for value in found])

    threads = [threading.Thread(target=work, args=(start,)) for start in (1000, 2000, 3000, 4000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[k for k in range(60) for _ in range(20)]] * 4


@pytest.mark.parametrize("text", ["{{ x }}", "a {% if x %}", "{{ unclosed", "{%"])
def test_a_text_with_marks_is_a_template(text: str) -> None:
    assert templates.is_template(text)


@pytest.mark.parametrize("text", ["", "x", "{ x }", "{# note #}", "}}", "${x}"])
def test_other_text_is_not(text: str) -> None:
    assert not templates.is_template(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ x }}", None),
        ("{{ x | default(1) + 2 }}", None),
        ("plain", None),
        ("{{ }}", "line 1"),
        ("a\nb {{ x | }}", "line 2"),
        ("{{ x", "line 1"),
        ("a\n\n{% if x %}", "line 3"),
        ("{{ x | uper }}", "there is no filter 'uper' at line 1 (did you mean 'upper'?)"),
        ("{% if false %}\n{{ x | zzz }}{% endif %}", "there is no filter 'zzz' at line 2"),
        ("{{ x is definde }}", "there is no test 'definde' at line 1 (did you mean 'defined'?)"),
        ("{{ xs | map('uper') }}", "there is no filter 'uper' at line 1"),
        ("{{ xs | select('od') }}", "there is no test 'od' at line 1"),
        ("{{ xs | selectattr('a', 'od') }}", "there is no test 'od' at line 1"),
        ("{% include 'x' %}", "the statement 'include' is not allowed at line 1"),
        ("{{ self }}", "the name 'self' is not available"),
        ("{% nonsense %}", "nonsense"),
    ],
)
def test_check_names_the_problem_and_its_line(text: str, problem: str | None) -> None:
    found = templates.check(text)
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert problem in found
