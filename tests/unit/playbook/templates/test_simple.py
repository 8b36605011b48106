from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.playbook.templates import ALONE, ResultView, TemplateError
from noetl.playbook.templates.program import Program
from noetl.playbook.templates.simple import parse
from tests.unit.playbook.templates.strategies import values

_words = st.sampled_from(["a", "b", "ctx", "items", "data", "status", "x1", "_", "upper", "true", "if", "now", "self"])
_spaces = st.sampled_from(["", " ", "  ", "\n", "\t"])
_lookups = st.builds(
    lambda before, path, after: f"{{{{{before}{'.'.join(path)}{after}}}}}",
    _spaces,
    st.lists(_words, min_size=1, max_size=4),
    _spaces,
)
_literals = st.sampled_from(
    ["", " ", "\n", "text", "{", "}", "}}", "{ a }", "%}", "#}", "$", "'", "é", "\r\n", "{#", "-"]
)
_sources = st.lists(_lookups | _literals, max_size=6).map("".join)
_names = st.dictionaries(_words, values | values.map(ResultView), max_size=6)


def outcome(act: Any) -> Any:
    try:
        value = act()
    except TemplateError as error:
        return type(error)
    return type(value), value


@settings(deadline=None, max_examples=400)
@given(_sources, _names, st.booleans())
def test_lookups_without_jinja_give_what_jinja_gives(text: str, names: dict[str, Any], strict: bool) -> None:
    sentence = parse(text)
    if sentence is None or not sentence.paths:
        return
    program = Program(text)
    assert outcome(lambda: sentence.value(names, strict=strict, host=ALONE)) == outcome(
        lambda: program.value(names, strict=strict, host=ALONE)
    )
    assert outcome(lambda: sentence.print(names, strict=strict, host=ALONE)) == outcome(
        lambda: program.print(names, strict=strict, host=ALONE)
    )


@pytest.mark.parametrize(
    "text", ["{{ a }}", "{{a.b.c}}", "x {{ a }} y {{ b.c }}", "{{ a.in.if }}", "{{ a }}}", "{ {{ a }}"]
)
def test_plain_lookups_are_recognised(text: str) -> None:
    assert parse(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "{{ true }}", "{{ not }}", "{{ now }}", "{{ self }}", "{{- a }}", "{{ a + 1 }}", "{{ a[0] }}", "{{ a . b }}",
        "{{ a }}{# x #}", "{{{ a }}}", "{{ a }}\r\n", "{% if a %}{% endif %}", "{{ a",
    ],
)  # fmt: skip
def test_everything_else_goes_to_jinja(text: str) -> None:
    assert parse(text) is None


def test_jinja_is_not_imported_for_plain_lookups() -> None:
    code = """
import sys
from noetl.playbook import templates
assert templates.render("{{ a.b }}", {"a": {"b": 1}}) == 1
assert templates.render_strict("SELECT {{ a.b }}", {"a": {"b": 1}}) == "SELECT 1"
assert templates.check("x {{ a }}") is None
assert templates.names("{{ a.b }}") == {"a"}
assert templates.condition("{{ a }}", {"a": "no"}) == (False, None)
assert "jinja2" not in sys.modules, "jinja2 is imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
