from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.playbook import templates
from tests.unit.playbook.templates.strategies import names as any_names


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("plain", set()),
        ("{{ a }}", {("a",)}),
        ("{{ a.b.c }}", {("a", "b", "c")}),
        ("x {{ a.b }} {{ c }}", {("a", "b"), ("c",)}),
        ("{{ a['b'].c }}", {("a", "b", "c")}),
        ("{{ big.rows[5].c }}", {("big", "rows")}),
        ("{{ a[k].c }}", {("a",), ("k",)}),
        ("{{ a[k.j] }}", {("a",), ("k", "j")}),
        ("{{ a.b.get('c') }}", {("a", "b")}),
        ("{{ a.b.get(k) }}", {("a", "b"), ("k",)}),
        ("{{ a.rows | map(attribute='x') | list }}", {("a", "rows")}),
        ("{{ a + b.c }}", {("a",), ("b", "c")}),
        ("{{ a.b == c.d }}", {("a", "b"), ("c", "d")}),
        ("{{ a.b if c.d else e.f }}", {("a", "b"), ("c", "d"), ("e", "f")}),
        ("{{ a.b[1:c.d] }}", {("a", "b"), ("c", "d")}),
        ("{{ x | default(a.b) }}", {("x",), ("a", "b")}),
        ("{% for r in a.rows %}{{ r.c }}{{ loop.index }}{% endfor %}", {("a", "rows")}),
        ("{% for r in a if r.c > b.d %}{{ r }}{% endfor %}", {("a",), ("b", "d")}),
        ("{% set y = a.b %}{{ y.c }}", {("a", "b")}),
        ("{% macro m(p) %}{{ p.q }}{{ a.b }}{% endmacro %}{{ m(c) }}", {("a", "b"), ("c",)}),
        ("{{ 1 == 't' == a.b or true or c }}", {("a", "b"), ("c",)}),
        ("{{ now() }}", {("now",)}),
        ("{{ keychain.api.token }}", {("keychain", "api", "token")}),
    ],
)
def test_paths_are_known_as_far_as_they_are_written_out(text: str, paths: set[tuple[str, ...]]) -> None:
    assert templates.paths(text) == paths
    assert templates.names(text) == {path[0] for path in paths}


class Watched(Mapping[str, Any]):
    """Names that remember which of them were looked up."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self.seen = set[str]()

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return self._names[key]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a template looks names up one by one")

    def __len__(self) -> int:
        return len(self._names)


_atoms = st.sampled_from(["a", "b.a", "ctx['a']", "step.items", "_x[0]", "1", "'t'", "none"])
_expressions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" ~ ", " == ", " and ", " or ", " in "]), inner).map("".join),
        inner.map(lambda one: f"({one}) | default(b)"),
        inner.map(lambda one: f"[{one}] | map('string') | list"),
        inner.map(lambda one: f"(ctx if {one} else step)"),
        inner.map(lambda one: f"a[{one}]"),
    ),
    max_leaves=5,
)
templates_ = st.one_of(
    _expressions.map(lambda one: f"{{{{ {one} }}}}"),
    _expressions.map(lambda one: f"text {{{{ {one} }}}}"),
    _expressions.map(lambda one: f"{{% for b in [{one}] %}}{{{{ b.x }}}}{{{{ _x }}}}{{% endfor %}}{{{{ b }}}}"),
    _expressions.map(lambda one: f"{{% set a = {one} %}}{{% if a %}}{{{{ a }}}}{{{{ step }}}}{{% endif %}}"),
    _expressions.map(lambda one: f"{{% macro m(a) %}}{{{{ a }}}}{{{{ b }}}}{{% endmacro %}}{{{{ m({one}) }}}}"),
)


@settings(deadline=None)
@given(templates_, any_names)
def test_nothing_is_looked_up_that_was_not_announced(text: str, names: dict[str, Any]) -> None:
    watched = Watched(names)
    templates.render_or_keep(text, watched)
    assert watched.seen <= templates.names(text)


def test_a_broken_template_has_no_names() -> None:
    with pytest.raises(templates.TemplateSyntax):
        templates.names("{{ broken")
