"""Whatever a file holds, the reader answers and never raises."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.playbook import Playbook, diagram, parse
from noetl.playbook.codes import CODES
from noetl.playbook.kinds import KINDS
from noetl.playbook.words import ARC_KEYS, BANNED, LOOP_MODES, ROOT_KEYS, STEP_KEYS
from noetl.playbook.writing import dump

_INNER = """
    spec mode policy rules then else do to arcs in cursor iterator frame name kind path admit allow retry code query
    inputs source target from by expect auth dispatch ingress verify spool headers directives failure max_in_flight
    attempts delay backoff timeout output_select store select scope
"""
_KEYS = st.sampled_from(sorted({*ROOT_KEYS, *STEP_KEYS, *ARC_KEYS, *BANNED, *_INNER.split()}))
_WORDS = st.sampled_from(
    ["", "a", "start", "{{ x }}", "{{ x", "{% if %}", "ctx.a", "iter.b", "retry", "jump", "previous", "Playbook",
     "Subscription", "noetl.io/v2", "push", "pull", "webhook", "-1", "1e3", *KINDS, *LOOP_MODES]
)  # fmt: skip
_LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | _WORDS
_TREES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6), max_leaves=30
)
_STEPS = st.fixed_dictionaries(
    {"step": _WORDS, "tool": _TREES}, optional={key: _TREES for key in STEP_KEYS if key not in ("step", "tool")}
)


def check(text: str) -> None:
    parsed = parse(text, "t.yaml")
    assert all(problem.line >= 1 and problem.column >= 1 and problem.code in CODES for problem in parsed.problems)
    for document in parsed.documents:
        if isinstance(document, Playbook):
            assert parse(document.to_yaml()).documents == (document,)
            assert diagram.svg(document)
            assert diagram.mermaid(document)


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_text_is_answered(text: str) -> None:
    check(text)


@given(_TREES)
@settings(max_examples=200, deadline=None)
def test_any_tree_is_answered(tree: Any) -> None:
    check(dump(tree) if isinstance(tree, dict) else "- x\n")


@given(st.lists(_STEPS, max_size=4), st.dictionaries(_KEYS, _TREES, max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_workflow_is_answered(steps: list[Any], rest: dict[str, Any]) -> None:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "t"}}
    check(dump({**rest, **head, "workflow": steps}))


@given(_TREES)
@settings(deadline=None)
def test_any_subscription_is_answered(spec: Any) -> None:
    check(dump({"apiVersion": "noetl.io/v1", "kind": "Subscription", "metadata": {"name": "t"}, "spec": spec}))
