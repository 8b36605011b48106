"""Older forms mean what section 16 says they mean."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.playbook import Playbook, load
from noetl.playbook.document import Rule, Task
from tests.unit.playbook.documents import codes, workflow


def only_task(tool: str) -> Task:
    return load(workflow("- step: s", f"  tool: {tool}")).steps["s"].tasks[0]


@pytest.mark.parametrize(
    ("tool", "field", "value"),
    [
        ("{kind: python, spec: {code: x = 1}}", "fields", {"code": "x = 1"}),
        ("{kind: python, code: y, spec: {code: x, input: {a: 1}}}", "fields", {"code": "y"}),
        ("{kind: python, code: x, args: {a: 1, b: 2}, input: {b: 3}}", "input", {"a": 1, "b": 3}),
        ("{kind: postgres, query: q, credential: pg}", "auth", "pg"),
        ("{kind: playbook, path: a/b, payload: {a: 1}}", "input", {"a": 1}),
        ("{kind: noop, task: x, iterator: y}", "fields", {}),
        (
            "{kind: container, runtime: {image: alpine, other: 1}}",
            "fields",
            {"image": "alpine", "runtime": {"other": 1}},
        ),
    ],
)
def test_a_field_ends_up_where_it_belongs(tool: str, field: str, value: Any) -> None:
    assert getattr(only_task(tool), field) == value


def test_container_args_are_its_own() -> None:
    assert only_task("{kind: container, image: alpine, args: [ls]}").fields["args"] == ["ls"]


def test_a_transfer_mapping_moves_into_its_target() -> None:
    task = only_task(
        "{kind: transfer, source: {type: http, url: u}, target: {type: duckdb, table: t}, mapping: {a: b}}"
    )
    assert task.fields["target"] == {"type": "duckdb", "table": "t", "mapping": {"a": "b"}}


@pytest.mark.parametrize(
    ("retry", "rule"),
    [
        (
            "{max_attempts: 5}",
            Rule(when="{{ output.status == 'error' and (output.error.retryable) }}", do="retry", attempts=5),
        ),
        (
            "{retry_on: [timeout], retry_on_status: [503], backoff: linear, backoff_seconds: 2}",
            Rule(
                when="{{ output.status == 'error' and "
                "(output.error.kind in ['timeout'] or output.error.status in [503]) }}",
                do="retry",
                backoff="linear",
                delay=2.0,
            ),
        ),
    ],
)
def test_retry_becomes_one_rule(retry: str, rule: Rule) -> None:
    assert only_task(f"{{kind: http, url: u, retry: {retry}}}").rules == (rule,)


def test_rules_of_its_own_win_over_retry() -> None:
    task = only_task(
        "{kind: http, url: u, retry: {max_attempts: 9}, spec: {policy: {rules: [{else: {then: {do: fail}}}]}}}"
    )
    assert task.rules == (Rule(do="fail"),)


def test_cond_is_the_inside_of_a_template() -> None:
    router = load(workflow("- {step: s, tool: {kind: noop}, next: {arcs: [{step: s, cond: a > 1}]}}")).steps["s"].router
    assert router is not None
    assert router.arcs[0].when == "{{ a > 1 }}"


def test_bare_keys_are_written_to_ctx() -> None:
    step = load(workflow("- {step: s, set: {a: 1}, tool: {kind: noop, set: {b: 2}}}")).steps["s"]
    assert (step.set, step.tasks[0].set) == ({"ctx.a": 1}, {"b": 2})


def test_the_root_forms_are_kept() -> None:
    head = "spec: {region: eu}\nowner: me\nworkbook: {greet: {tool: {kind: noop}}}\n"
    playbook = load(workflow("- {step: s, tool: {kind: workbook, name: greet}}", head=head).replace("io/v2", "io/v10"))
    assert isinstance(playbook, Playbook)
    assert (playbook.spec, playbook.extra, list(playbook.workbook)) == ({"region": "eu"}, {"owner": "me"}, ["greet"])
    assert playbook.api_version == "noetl.io/v2"
    assert playbook.position(playbook.workbook["greet"].task.at, "kind").line == 6


@pytest.mark.parametrize(
    ("code", "warned"),
    [
        ("result = data", True),
        ("return data['x']", True),
        ("data = 1\nresult = data", False),
        ("def main(data): return data", False),
        ("import data", False),
        ("result = [data for data in x]", False),
        ("result = 'data'", False),
        ("result = data {{ x }", False),
    ],
)
def test_an_implicit_data_is_noticed(code: str, warned: bool) -> None:
    lines = [f"        {line}" for line in code.splitlines()]
    text = workflow("- step: s", "  tool:", "    kind: python", "    code: |", *lines)
    assert ("NTL-931" in codes(text)) == warned
    assert "NTL-931" not in codes(text.replace("kind: python", "kind: python\n      input: {data: 1}"))
