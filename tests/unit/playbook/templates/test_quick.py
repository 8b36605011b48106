from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.playbook.templates import ALONE, Host, Limits, ResultView, TemplateError, render
from noetl.playbook.templates.program import Program
from noetl.playbook.templates.quick import Quick, parse
from tests.unit.playbook.templates.strategies import values

_words = st.sampled_from(["a", "b", "ctx", "items", "data", "status", "true", "not", "now", "self"])
_paths = st.lists(_words, min_size=1, max_size=3).map(".".join)
_quoted = st.sampled_from(["''", '"\'"', "'x'", '"x y"', '"ok"', "'}'", "'é'", "'1'"])
_filters = st.sampled_from(["", "|int", " | int", " | tojson", "|tojson | int", " | string"]) | st.builds(
    lambda old, new: f" | replace({old}, {new})", _quoted, _quoted
)
_expressions = st.builds(lambda path, *filters: f"{{{{ {path}{''.join(filters)} }}}}", _paths, _filters, _filters)
_literals = st.sampled_from(["", " ", "\n", "text", "{", "}}", "'", "\r\n", "{#", "WHERE x = '"])
_phrases = st.lists(_expressions | _literals, max_size=5).map("".join)
_constants = _quoted | st.sampled_from(["0", "1", "-1", "429", "1.5", "007", "true", "False", "none", "b", "1e3"])
_terms = st.builds(
    lambda negated, path, sign, constant: f"{negated}{path}" + (f" {sign} {constant}" if sign else ""),
    st.sampled_from(["", "", "not "]),
    _paths,
    st.sampled_from(["", "==", "!=", "<", ">="]),
    _constants,
)
_conditions = st.builds(
    lambda words, terms, around: around + "{{ " + words.join(terms) + " }}" + around,
    st.sampled_from([" and ", " or ", "\nand\n"]),
    st.lists(_terms, min_size=1, max_size=4),
    st.sampled_from(["", " ", "\n"]),
)
_sums = st.builds(
    lambda path, added: f"{{{{ {path} + {added} }}}}",
    _paths,
    st.sampled_from(["1", "0", "007", "-1", "1.5", "'x'", "b"]) | _paths.map(lambda path: f"[{path}]"),
)
_numbers = st.integers(-2, 500) | st.sampled_from(
    ["ok", "error", "x", "12", " 12", "1.5", "٣", "'", True, 10**40, None]
)
_names = st.dictionaries(
    _words, values | values.map(ResultView) | _numbers | st.dictionaries(_words, _numbers, max_size=4), max_size=6
)


def outcome(act: Any) -> Any:
    try:
        value = act()
    except TemplateError as error:
        return type(error), str(error)
    return type(value), value


@settings(deadline=None, max_examples=600)
@given(_phrases | _conditions | _sums, _names, st.booleans())
def test_what_jinja_is_not_asked_for_is_what_jinja_gives(text: str, names: dict[str, Any], strict: bool) -> None:
    quick = parse(text)
    if quick is None:
        return
    program = Program(text)
    assert outcome(lambda: quick.value(names, strict=strict, host=ALONE)) == outcome(
        lambda: program.value(names, strict=strict, host=ALONE)
    )
    assert outcome(lambda: quick.print(names, strict=strict, host=ALONE)) == outcome(
        lambda: program.print(names, strict=strict, host=ALONE)
    )


@pytest.mark.parametrize(
    "text",
    [
        "{{ a | int }}", "x {{ a.b|tojson }} y {{ c }}", "{{ a | tojson | replace(\"'\", \"''\") }}", "{{ a == 'x' }}",
        "{{ output.status == 'error' and output.error.status == 429 }}", "{{ not a or b != none }}", "{{ a >= 1.5 }}",
        "{{ iter.page + 1 }}", "{{ iter.answers + [output.data] }}",
    ],
)  # fmt: skip
def test_the_usual_forms_are_recognised(text: str) -> None:
    assert isinstance(parse(text), Quick)


@pytest.mark.parametrize(
    "text",
    [
        "{{ a | upper }}", "{{ a | int(3) }}", "{{ a | tojson(2) }}", "{{ a | replace('x', 'y', 1) }}", "{{ a + 1.5 }}",
        "{{ a + 01 }}", "{{ a + [b, c] }}", "{{ a + [now] }}", "{{ a + 1 + 2 }}",
        "{{ a and b or c }}", "{{ a == b }}", "{{ a < 'x' }}", "{{ a == 007 }}", "{{ now == 'x' }}", "{{- a | int }}",
        "{{ a | int }}{# x #}", "{{ a | int }}\r\n", "{{ a == 1 == 2 }}", "{{ (a) }}", "{{ a | replace('{{', '') }}",
    ],
)  # fmt: skip
def test_everything_else_goes_to_jinja(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("value", [[[[["x" * 100] * 30] * 30] * 30] * 30, "x" * 70_000, float("nan"), {1: 2}, b"x"])
def test_what_is_large_or_no_json_is_judged_by_jinja(value: Any) -> None:
    text = "{{ a | tojson }}!"
    assert outcome(lambda: render(text, {"a": value})) == outcome(
        lambda: Program(text).value({"a": value}, strict=False, host=ALONE)
    )


def test_narrow_limits_are_kept() -> None:
    host = Host(limits=Limits(text=10))
    with pytest.raises(TemplateError, match="more than 10 characters"):
        render("x {{ a | tojson }}", {"a": "y" * 20}, host=host)


def test_jinja_is_not_imported_for_the_ordinary_case() -> None:
    code = """
import sys
from noetl.playbook import templates
assert templates.render_strict("x {{ a.b | int }}", {"a": {"b": "1"}}) == "x 1"
assert templates.condition("{{ a == 'x' and not b }}", {"a": "x"}) == (True, None)
assert "jinja2" not in sys.modules, "jinja2 is imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
