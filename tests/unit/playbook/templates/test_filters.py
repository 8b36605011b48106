from __future__ import annotations

from typing import Any

import pytest

from noetl.playbook import templates
from noetl.playbook.templates import filters, judges, vocabulary

NAMES: dict[str, Any] = {
    "users": [
        {"name": "Zoe", "age": 30, "on": True, "at": {"city": "Bern"}},
        {"name": "adam", "age": 20, "on": False, "at": {"city": "Rome"}},
        {"name": "Bo", "age": 30, "on": True, "at": {"city": "Bern"}},
    ],
    "m": {"b": 1, "a": 2},
    "words": "a quick brown fox",
}


def test_the_vocabulary_is_what_there_is() -> None:
    assert set(filters.FILTERS) == vocabulary.FILTERS
    assert set(judges.TESTS) == vocabulary.TESTS


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("-3 | abs", 3),
        ("'hé' | b64encode", "aMOp"),
        ("gone | b64encode", ""),
        ("range(5) | batch(2)", [[0, 1], [2, 3], [4]]),
        ("range(5) | batch(2, 'x')", [[0, 1], [2, 3], [4, "x"]]),
        ("'heLLO' | capitalize", "Hello"),
        ("'x' | center(5)", "  x  "),
        ("users | count", 3),
        ("none | default('x', true)", "x"),
        ("m | dictsort", [["a", 2], ["b", 1]]),
        ("m | dictsort(by='value')", [["b", 1], ["a", 2]]),
        ("'<a \"b\">' | e", "&lt;a &#34;b&#34;&gt;"),
        ("'<' | escape", "&lt;"),
        ("'<' | forceescape", "&lt;"),
        ("13000 | filesizeformat", "13.0 kB"),
        ("users | first", NAMES["users"][0]),
        ("[] | first is defined", False),
        ("'4.5' | float", 4.5),
        ("'x' | float(1.5)", 1.5),
        ("'nan' | float", 0.0),
        ("'%s is %d' | format('x', 3)", "x is 3"),
        ("'%(a)s' | format(a=1)", "1"),
        ("users | groupby('age') | map('first')", [20, 30]),
        ("(users | groupby('age') | last).list | map(attribute='name')", ["Zoe", "Bo"]),
        ("(users | groupby('age') | first).grouper", 20),
        ("'a\\nb' | indent(2)", "a\n  b"),
        ("'42' | int", 42),
        ("'4.9' | int", 4),
        ("'x' | int", 0),
        ("'0x1f' | int(base=16)", 31),
        ("none | int", 0),
        ("m | items", [["b", 1], ["a", 2]]),
        ("[1, none, 'x', [2]] | join('|')", "1|None|x|[2]"),
        ("users | join(', ', attribute='name')", "Zoe, adam, Bo"),
        ("users | map(attribute='name') | last", "Bo"),
        ("words | length", 17),
        ("'ab' | list", ["a", "b"]),
        ("m | list", ["b", "a"]),
        ("'ABC' | lower", "abc"),
        ("['a', 'b'] | map('upper')", ["A", "B"]),
        ("users | map(attribute='at.city')", ["Bern", "Rome", "Bern"]),
        ("[['a', 1]] | map(attribute=0)", ["a"]),
        ("users | max(attribute='age')", NAMES["users"][0]),
        ("[3, 1, 2] | min", 1),
        ("[] | max is defined", False),
        ("[1, 2, 3] | reject('odd')", [2]),
        ("users | rejectattr('on') | map(attribute='name')", ["adam"]),
        ("'aab' | replace('a', 'x')", "xxb"),
        ("'aab' | replace('a', 'x', 1)", "xab"),
        ("[1, 2] | reverse", [2, 1]),
        ("'ab' | reverse", "ba"),
        ("2.567 | round(2)", 2.57),
        ("2.1 | round(0, 'ceil') | int", 3),
        ("'<b>' | safe", "<b>"),
        ("[0, 1, '', 'x'] | select", [1, "x"]),
        ("[1, 2, 3] | select('in', [1, 3])", [1, 3]),
        ("users | selectattr('age', 'gt', 25) | map(attribute='name')", ["Zoe", "Bo"]),
        ("range(5) | slice(2)", [[0, 1, 2], [3, 4]]),
        ("[3, 1, 2] | sort", [1, 2, 3]),
        ("[3, 1, 2] | sort(reverse=true)", [3, 2, 1]),
        ("users | sort(attribute='name') | map(attribute='name')", ["adam", "Bo", "Zoe"]),
        ("users | sort(attribute='age,name') | map(attribute='name')", ["adam", "Bo", "Zoe"]),
        ("[1] | string", "[1]"),
        ("users | sum(attribute='age')", 80),
        ("[[1], [2, 3]] | sum(start=[])", [1, 2, 3]),
        ("[1, 2.5] | sum(start=1)", 4.5),
        ("'a tale' | title", "A Tale"),
        ("m | tojson", '{"b": 1, "a": 2}'),
        ("' x ' | trim", "x"),
        ("'--x--' | trim('-')", "x"),
        ("words | truncate(12, leeway=0)", "a quick..."),
        ("[1, 2, 1] | unique", [1, 2]),
        ("users | unique(attribute='age') | map(attribute='name')", ["Zoe", "adam"]),
        ("'x' | upper", "X"),
        ("'a b/c?' | urlencode", "a%20b/c%3F"),
        ("{'a': 'x y', 'b': 2} | urlencode", "a=x+y&b=2"),
        ("words | wordcount", 4),
        ("'aaa bbb' | wordwrap(3)", "aaa\nbbb"),
    ],
)
def test_filters(expression: str, value: Any) -> None:
    rendered = templates.render(f"{{{{ {expression} }}}}", NAMES)
    assert rendered == value
    assert type(rendered) is type(value)


@pytest.mark.parametrize(
    "expression",
    [
        "1 is integer", "1.5 is float", "1 is number", "true is boolean", "true is true", "false is false",
        "none is none", "'x' is string", "m is mapping", "users is sequence", "users is iterable", "3 is odd",
        "4 is even", "9 is divisibleby 3", "1 is in [1]", "1 is eq 1", "1 is ne 2", "2 is gt 1", "2 is ge 2",
        "1 is lt 2", "1 is le 1", "1 is lessthan 2", "1 is equalto 1", "2 is greaterthan 1", "'a' is lower",
        "'A' is upper", "300 is sameas 300", "1 is not sameas true", "'upper' is filter", "'attr' is not filter",
        "'odd' is test", "users is defined", "gone is undefined", "true is not integer", "5 is not iterable",
    ],
)  # fmt: skip
def test_tests(expression: str) -> None:
    assert templates.render(f"{{{{ {expression} }}}}", NAMES) is True


@pytest.mark.parametrize(
    "expression", ["5 | length", "5 | list", "none | items", "'x' | abs", "[1, 'a'] | sort", "5 | first"]
)
def test_a_filter_that_does_not_fit_its_value_is_an_error(expression: str) -> None:
    with pytest.raises(templates.TemplateFailed):
        templates.render(f"{{{{ {expression} }}}}", {})
