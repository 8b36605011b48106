from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.playbook import templates
from noetl.playbook.templates import Host, TemplateError, TemplateFailed, TemplateSyntax
from tests.unit.playbook.templates.strategies import names as any_names

NAMES: dict[str, Any] = {"x": 1, "m": {"a": [1]}, "output": {"status": "ok", "data": {"v": 2}}}


def test_templates_are_rendered_inside_of_mappings_and_lists_but_not_in_keys() -> None:
    value = {"{{ x }}": "{{ x }}", "list": ["{{ m.a }}", {"deep": "n={{ x }}"}, 7, None, True], "same": "{ x }"}
    assert templates.render_value(value, NAMES) == {
        "{{ x }}": 1,
        "list": [[1], {"deep": "n=1"}, 7, None, True],
        "same": "{ x }",
    }


def test_rendering_a_value_changes_nothing_in_it() -> None:
    value = {"a": ["{{ x }}"]}
    templates.render_value(value, NAMES)
    assert value == {"a": ["{{ x }}"]}


def test_a_value_with_a_template_that_raises_is_an_error() -> None:
    with pytest.raises(TemplateFailed):
        templates.render_value({"a": "{{ x + 'a' }}"}, NAMES)


def test_a_lenient_field_keeps_the_raw_text_of_what_raises() -> None:
    kept = templates.render_or_keep({"a": "{{ x + 'a' }}", "b": ["{{ x }}", "{{ broken", "{{ gone }}"]}, NAMES)
    assert kept.value == {"a": "{{ x + 'a' }}", "b": [1, "{{ broken", None]}
    assert [problem.code for problem in kept.problems] == ["TEMPLATE_ERROR", "TEMPLATE_SYNTAX"]


def test_a_default_of_the_workload_keeps_its_text_when_it_prints_an_undefined_name() -> None:
    kept = templates.render_or_keep(
        {"a": "{{ gone }}", "b": "b {{ gone }}", "c": "{{ gone or x }}"}, NAMES, strict=True
    )
    assert kept.value == {"a": "{{ gone }}", "b": "b {{ gone }}", "c": 1}
    assert len(kept.problems) == 2


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{", "}}", "{%", "%}", " a ", "ctx", ".b", "[0]", "['a']", " + ", "1", " | upper", " | int", " if ",
                "for x in a", " endif ", "endfor", "'t'", "(", ")", "~", " is defined", "-", "{#", "#}", "\n",
            ]
        ),
        max_size=14,
    ),
    any_names,
)  # fmt: skip
def test_a_lenient_field_never_raises(pieces: list[str], names: dict[str, Any]) -> None:
    text = "".join(pieces)
    kept = templates.render_or_keep(text, names)
    if kept.problems:
        assert kept.value == text


@pytest.mark.parametrize("text", ["SELECT {{ x", "SELECT {% if x %}", "SELECT {{ x | nope }}", "{{ x y }}"])
def test_a_strict_field_fails_on_text_that_cannot_be_parsed(text: str) -> None:
    with pytest.raises(TemplateSyntax) as caught:
        templates.render_strict(text, NAMES)
    assert caught.value.code == "TEMPLATE_SYNTAX"


def test_a_strict_field_may_be_a_mapping() -> None:
    assert templates.render_strict({"source": "credential", "key": "pg_{{ x }}"}, NAMES) == {
        "source": "credential",
        "key": "pg_1",
    }


@pytest.mark.parametrize(
    ("code", "rendered"),
    [
        ("result = {{ x }}", "result = 1"),
        ("result = {{ m.a }}", "result = [1]"),
        ("{{ x }}", "1"),
        (" {{ m }}\n", ' {"a": [1]}\n'),
        ("x = f'{{gone}}'", "x = f'{{gone}}'"),
        ("x = f'{{ {y} }}'", "x = f'{{ {y} }}'"),
        ("x = {{}}", "x = {{}}"),
        ("echo ${#list} {{ x }}", "echo ${#list} {{ x }}"),
        ("print({{ gone | upper }})", "print({{ gone | upper }})"),
        ("{% if x %}a{% endif %}\n", "a\n"),
        ("print('{%')", "print('{%')"),
        ("no braces\n", "no braces\n"),
    ],
)
def test_code_is_text_and_stays_as_it_is_where_braces_meant_something_else(code: str, rendered: str) -> None:
    assert templates.render_code(code, NAMES) == rendered


def test_code_that_fails_otherwise_is_an_error() -> None:
    with pytest.raises(TemplateFailed):
        templates.render_code("result = {{ x + 'a' }}", NAMES)


@pytest.mark.parametrize("text", ["{{ output }}", "{{output}}", " {{ output }}\n", "{{- output -}}"])
def test_the_second_face_of_output_in_a_task_level_set(text: str) -> None:
    assert templates.render_task_set(text, NAMES, {"raw": 1}) == {"raw": 1}


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        ("{{ output.data.v }}", 2),
        ("{{ output | tojson }}", '{"status": "ok", "data": {"v": 2}}'),
        ("{{ (output) }}", NAMES["output"]),
        ("x{{ output }}", 'x{"status": "ok", "data": {"v": 2}}'),
        (["{{ output }}"], [NAMES["output"]]),
        (5, 5),
    ],
)
def test_every_other_value_of_a_task_level_set_reads_the_envelope(value: Any, rendered: Any) -> None:
    assert templates.render_task_set(value, NAMES, {"raw": 1}) == rendered


def test_the_host_lends_functions() -> None:
    host = Host(
        now=lambda: "2026-01-02T03:04:05Z",
        token=lambda credential: f"token of {credential}",
        encrypt_secret=lambda text: f"sealed({text})",
    )
    assert templates.render("{{ now() }}", {}, host=host) == "2026-01-02T03:04:05Z"
    assert templates.render("at {{ now() }}", {}, host=Host(now="then")) == "at then"
    assert templates.render_strict("Bearer {{ token('api') }}", {}, host=host) == "Bearer token of api"
    assert templates.render_value(["{{ 'x' | encrypt_secret }}"], {}, host=host) == ["sealed(x)"]


@pytest.mark.parametrize("text", ["{{ now() }}", "{{ token('api') }}", "{{ 'x' | encrypt_secret }}"])
def test_a_function_that_nobody_lends_is_an_error(text: str) -> None:
    with pytest.raises(TemplateFailed, match="is not available here"):
        templates.render(text, {})


def test_names_win_over_functions() -> None:
    assert templates.render("{{ now.hour + range }}", {"now": {"hour": 1}, "range": 2}) == 3


def test_a_function_is_not_a_value() -> None:
    for text in ("{{ now }}", "x{{ range }}", "{{ [dict] }}"):
        with pytest.raises(TemplateError):
            templates.render(text, {})


def test_an_execution_id_is_usable_quoted_and_bare() -> None:
    names = {"execution_id": "9223372036854775807"}
    assert templates.render_strict("'{{ execution_id }}' {{ execution_id }}", names) == (
        "'9223372036854775807' 9223372036854775807"
    )
