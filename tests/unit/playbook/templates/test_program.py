"""Statements, operators, methods and functions: the language around the filters."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.playbook import templates

NAMES: dict[str, Any] = {
    "rows": [{"n": 1}, {"n": 2}],
    "m": {"a": 1},
    "t": "Ab,c",
    "tree": [{"n": 1, "sub": [{"n": 2}]}],
}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{% if m.a == 1 %}one{% elif m.a %}some{% else %}none{% endif %}", "one"),
        ("{% for r in rows %}{{ r.n }}{% if not loop.last %},{% endif %}{% endfor %}", "1,2"),
        ("{% for r in rows if r.n > 1 %}{{ loop.index0 }}{{ r.n }}{% endfor %}", "02"),
        ("{% for r in [] %}x{% else %}empty{% endfor %}", "empty"),
        ("{% for k, v in m.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% for r in rows %}{{ loop.cycle('a', 'b') }}{{ loop.length }}{{ loop.revindex }}{% endfor %}", "a22b21"),
        ("{% for r in rows %}{{ loop.changed(r.n) }}{% endfor %}", "TrueTrue"),
        ("{% for r in rows %}{{ loop.previtem.n }}-{{ loop.nextitem.n }} {% endfor %}", "-2 1- "),
        ("{% for x in tree recursive %}{{ x.n }}{{ loop(x.sub) }}{% endfor %}", "12"),
        ("{% set x = 2 %}{{ x * 2 }}", "4"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}", "A1"),
        ("{% set n = namespace(s=0) %}{% for r in rows %}{% set n.s = n.s + r.n %}{% endfor %}{{ n.s }}", "3"),
        ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "abab"),
        ("{% set j = joiner('; ') %}{% for r in rows %}{{ j() }}{{ r.n }}{% endfor %}", "1; 2"),
        ("{% macro m(x, y=2) %}[{{ x }}{{ y }}]{% endmacro %}{{ m(1) }}{{ m(1, y=3) }}", "[12][13]"),
        ("{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{% endcall %}", "<x>"),
        ("{% with x = 1 %}{{ x }}{% endwith %}{{ x }}", "1"),
        ("{% filter upper %}a{{ t }}{% endfilter %}", "AAB,C"),
        ("a {# note #}b {{- 1 }}", "a b1"),
    ],
)
def test_statements(text: str, printed: str) -> None:
    assert templates.render(text, NAMES) == printed


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3 - 4", 3),
        ("7 % 3", 1),
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("1 ** 10000000", 1),
        ("-3 // 2", -2),
        ("'a' + 'b'", "ab"),
        ("'ab' * 2", "abab"),
        ("[1] + [2]", [1, 2]),
        ("[0] * 2", [0, 0]),
        ("'a' ~ 1 ~ none ~ [1]", "a1None[1]"),
        ("1 < 2 <= 2 < 3", True),
        ("1 < 2 > 5", False),
        ("'b' in 'abc' and 1 not in [2] and 'a' in m", True),
        ("{'a': 1} == m", True),
        ("[1, 2] < [1, 3]", True),
        ("rows[0].n + rows[-1].n", 3),
        ("rows[1:] | length", 1),
        ("t[::-1]", "c,bA"),
        ("t[:2]", "Ab"),
        ("'%s-%03d-%.2f-%%' % ('a', 7, 1.5)", "a-007-1.50-%"),
        ("'%(a)s' % m", "1"),
        ("'%s' % m", '{"a": 1}'),
        (
            "'{} {0}'.format(1) if false else '{0} {b} {0:>3} {c.a} {d[0]!r}'.format(1, b=2, c=m, d=['x'])",
            "1 2   1 1 'x'",
        ),
        ("t.upper().lower().split(',')", ["ab", "c"]),
        ("t.replace('A', 'x').strip('c')", "xb,"),
        ("t.startswith('A') and t.endswith('c') and t.find('z') == -1", True),
        ("'-'.join(['a', 'b'])", "a-b"),
        ("'a=b'.partition('=')", ["a", "=", "b"]),
        ("'7'.zfill(3) ~ 'x'.ljust(2) ~ '|'", "007x |"),
        ("[1, 2, 1].count(1) + [1, 2].index(2)", 3),
        ("m.get('a') + m.get('z', 1)", 2),
        ("m.keys() + m.values()", ["a", 1]),
        ("dict(m, b=2)", {"a": 1, "b": 2}),
        ("dict([['k', 'v']])", {"k": "v"}),
        ("range(1, 10, 4)", [1, 5, 9]),
        ("range(0)", []),
        ("true and not false", True),
        ("'yes' if m else 'no'", "yes"),
    ],
)
def test_expressions(expression: str, value: Any) -> None:
    rendered = templates.render(f"{{{{ {expression} }}}}", NAMES)
    assert rendered == value
    assert type(rendered) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ 1 + 'a' }}", "unsupported operand type(s) for +: 'int' and 'str' at line 1, column 1: {{ 1 + 'a' }}"),
        ("ok\n  {{ 1 / 0 }}", "division by zero at line 2, column 3: {{ 1 / 0 }}"),
        ("{% for x in 5 %}{% endfor %}", "a int is not a list at line 1"),
        ("{{ m.a() }}", "a int is not a function at line 1, column 1: {{ m.a() }}"),
        ("{{ '%d' % 'x' }}", "%d format"),
        ("{{ '%s %s' % ('x',) }}", "the format has more places than there are values"),
        ("{{ '%s' % ('x', 'y') }}", "there are more values than the format has places"),
        ("{{ '%y' % 1 }}", "the format is not one of"),
        ("{{ (-8) ** 0.5 }}", "the power is not a real number"),
    ],
)
def test_an_operation_that_the_values_do_not_allow(text: str, message: str) -> None:
    with pytest.raises(templates.TemplateFailed) as caught:
        templates.render(text, NAMES)
    assert message in str(caught.value)


def test_rendering_leaves_the_names_alone() -> None:
    names = {"ctx": {"a": [1]}}
    templates.render("{% set ctx = 1 %}{% set n = namespace(names=ctx) %}{% set n.a = 2 %}{{ n.a }}", names)
    assert names == {"ctx": {"a": [1]}}


def test_a_rendering_leaves_nothing_behind_for_the_next() -> None:
    template = templates.compile("{% set seen = gone | default('nothing') %}{% set gone = 1 %}{{ seen }}")
    assert [template.render({}) for _ in range(2)] == ["nothing", "nothing"]
