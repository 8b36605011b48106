from __future__ import annotations

from typing import Any

import pytest

from noetl.playbook import templates
from noetl.playbook.templates import TemplateUndefined

NAMES: dict[str, Any] = {"ctx": {"a": 1, "none": None}, "rows": [{"n": 1}, {}]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ gone }}", None),
        ("{{ ctx.gone }}", None),
        ("{{ ctx.gone.further['and'].on[3] }}", None),
        ("{{ ctx.none.further }}", None),
        ("{{ ctx.a.further }}", None),
        ("{{ rows[7].n }}", None),
        (">{{ gone }}<", "><"),
        (">{{ gone.x + '' if gone else '' }}<", "><"),
        ("{{ true if gone else false }}", False),
        ("{{ not gone }}", True),
        ("{{ gone or 'x' }}", "x"),
        ("{{ gone and 1 }}", None),
        ("{% for x in gone %}x{% else %}none{% endfor %}", "none"),
        ("{{ gone | int }}", 0),
        ("{{ gone | int(5) }}", 5),
        ("{{ gone | float }}", 0.0),
        ("{{ gone | length }}", 0),
        ("{{ gone | list }}", []),
        ("{{ gone | map('upper') | list }}", []),
        ("{{ gone | upper }}", ""),
        ("{{ gone | first }}", None),
        ("{{ gone | tojson }}", "null"),
        ("{{ gone | default('x') }}", "x"),
        ("{{ ctx.gone.further | default('x') }}", "x"),
        ("{{ gone | d('x') }}", "x"),
        ("{{ '' | default('x') }}", ""),
        ("{{ '' | default('x', true) }}", "x"),
        ("{{ gone is defined }}", False),
        ("{{ gone is undefined }}", True),
        ("{{ ctx.none is defined }}", True),
        ("{{ gone.x is defined }}", False),
        ("{{ 1 in gone }}", False),
        ("{{ gone in [1] }}", False),
        ("{{ gone == 1 }}", False),
        ("{{ gone != 1 }}", True),
        ("{{ gone[1:] }}", None),
        ("{{ 1 if false }}", None),
        (">{{ 1 if false }}<", "><"),
        ("{{ rows | map(attribute='n') | list }}", [1, None]),
        ("{{ rows | map(attribute='n', default=0) | sum }}", 1),
        ("{{ ctx.items }}", None),
        ("{{ ctx.items | default([]) }}", []),
    ],
)
def test_lenient_undefined(text: str, value: Any) -> None:
    rendered = templates.render(text, NAMES)
    assert rendered == value
    assert type(rendered) is type(value)


@pytest.mark.parametrize(
    "text", ["{{ gone + 1 }}", "{{ gone > 1 }}", "{{ gone() }}", "{{ ctx.gone.call() }}", "{{ -gone }}"]
)
def test_calculating_with_undefined_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(TemplateUndefined, match=r"gone.* is undefined at line 1, column 1: \{\{"):
        templates.render(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "{{ gone }}",
        "SELECT {{ gone }}",
        "SELECT {{ ctx.gone }}",
        "SELECT {{ ctx.gone.further }}",
        "SELECT {{ ctx['gone'] }}",
        "SELECT {{ gone | upper }}",
        "SELECT {{ gone | int }}",
        "SELECT {{ gone | length }}",
        "SELECT {{ gone | tojson }}",
        "SELECT {{ gone | join(',') }}",
        "SELECT {{ gone or ctx.gone }}",
        "SELECT {{ 'x' ~ gone }}",
        "SELECT {{ '%s' % gone }}",
        "SELECT {{ '{}'.format(gone) }}",
        "SELECT {{ 'x' | replace('x', gone) }}",
        "SELECT {{ [ctx.a, gone] }}",
        "{{ [ctx.a, gone] }}",
        "SELECT {{ [ctx.a, gone] | join(',') }}",
        "SELECT {{ rows | map(attribute='n') | join(',') }}",
        "SELECT {% for x in gone %}{{ x }}{% endfor %}",
        "SELECT {% set x = gone %}{{ x }}",
        "SELECT {{ 1 if false }}",
        "SELECT {{ rows[7].n }}",
        "SELECT {{ gone + 1 }}",
        "SELECT {{ ctx.items }}",
    ],
)
def test_a_strict_field_fails_when_undefined_is_printed_or_filtered(text: str) -> None:
    with pytest.raises(TemplateUndefined) as caught:
        templates.render_strict(text, NAMES)
    assert caught.value.code == "TEMPLATE_UNDEFINED"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ gone | default(1) }}", 1),
        ("{{ ctx.gone.further | default('x') | upper }}", "X"),
        ("{{ gone is defined }}", False),
        ("{{ gone.x is undefined }}", True),
        ("a{% if gone %}b{% endif %}", "a"),
        ("a{% if gone.x == 1 %}b{% endif %}", "a"),
        ("a{% if not gone %}b{% endif %}", "ab"),
        ("{{ 'a' if gone else 'b' }}", "b"),
        ("{{ gone or 'x' }}", "x"),
        ("{{ ctx.none }}", None),
        ("SELECT {{ ctx.none }}", "SELECT None"),
    ],
)
def test_a_strict_field_may_test_and_replace_what_is_undefined(text: str, value: Any) -> None:
    assert templates.render_strict(text, NAMES) == value


def test_the_message_names_the_expression_and_its_place() -> None:
    with pytest.raises(TemplateUndefined) as caught:
        templates.render_strict("SELECT *\nFROM t\nWHERE a = {{ ctx.a }} AND id = {{ ctx.user.id | int }}", NAMES)
    assert str(caught.value) == "'user.id' is undefined at line 3, column 32: {{ ctx.user.id | int }}"
    assert (caught.value.line, caught.value.column) == (3, 32)


def test_the_message_of_a_plain_lookup_is_as_exact() -> None:
    with pytest.raises(TemplateUndefined) as caught:
        templates.render_strict("SELECT *\nFROM {{ ctx.table }}", NAMES)
    assert str(caught.value) == "'ctx.table' is undefined at line 2, column 6: {{ ctx.table }}"


def test_messages_hold_no_values() -> None:
    names = {"secret": "hunter2", "list": ["hunter2"]}
    for text in (
        "{{ list.index(secret ~ 'x') }}",
        "{{ secret + 1 }}",
        "{{ secret.hunter() }}",
        "{{ 'a'.index(secret) }}",
    ):
        with pytest.raises(templates.TemplateError) as caught:
            templates.render(text, names)
        assert "hunter2" not in str(caught.value)
