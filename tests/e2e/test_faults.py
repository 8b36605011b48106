"""What a person reads when a run has failed: where it was, why, and what to try."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import Home, Result
from tests.services.http import serving
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]  # fixtures

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: team/t}\n"
HEAD += "workload: {customer: Ada, rows: [1, 2, 3]}\nworkflow:\n"


def write(home: Home, text: str, name: str = "t.yaml") -> Path:
    file = home.path.parent / name
    file.write_text(text, encoding="utf-8")
    return file


def fail(home: Home, steps: str) -> Result:
    result = home.run("run", write(home, HEAD + steps).name)
    assert result.code == 1, result
    assert "Traceback" not in result.stderr
    return result


def execution_of(result: Result) -> str:
    line = next(line for line in result.stderr.splitlines() if line.startswith("FAILED"))
    return line.split()[1]


def marked(result: Result) -> str:
    """The line of the file that is marked, and the part of it above the marks."""
    lines = result.stderr.splitlines()
    at = next(number for number, line in enumerate(lines) if line.lstrip().startswith(">"))
    start = lines[at + 1].index("^")
    return lines[at][start : lines[at + 1].rindex("^") + 1]


def test_an_exception_in_python_code(new_home: Home) -> None:
    result = fail(new_home, """\
  - step: fetch
    tool:
      kind: python
      input: {customer: "{{ customer }}", secretive: hush}
      code: |
        rows = [1, 2]
        # not this one
        result = len(customer) + rows[7]
""")  # fmt: skip
    execution = execution_of(result)
    assert "step 'fetch': PY_IndexError: list index out of range" in result.stderr
    assert "t.yaml:13:34" in result.stderr
    assert ">   13 |         result = len(customer) + rows[7]" in result.stderr
    assert "     12 |         # not this one" in result.stderr
    assert marked(result) == "rows[7]"
    assert "names there: customer, rows, secretive" in result.stderr
    assert "hush" not in result.stderr, "names, not values"
    assert f"try: noetl logs {execution} --step fetch" in result.stderr
    assert f"noetl retry {execution} --from fetch --file t.yaml" in result.stderr
    assert f"noetl events {execution} --type call.error --json" in result.stderr


def test_the_same_is_said_later(new_home: Home) -> None:
    result = fail(new_home, '  - {step: fetch, tool: {kind: python, code: "result = 1 / 0"}}\n')
    later = new_home.run("status", execution_of(result))
    assert later.code == 1
    assert later.stderr == result.stderr.partition("events\n")[2]


def test_code_that_a_template_has_changed_is_shown_without_columns(new_home: Home) -> None:
    result = fail(new_home, "  - {step: fetch, tool: {kind: python, code: \"result = len('{{ customer }}') / 0\"}}\n")
    assert ">    6 |   - {step: fetch" in result.stderr
    assert "^" not in result.stderr


def test_code_that_is_no_python(new_home: Home) -> None:
    result = fail(new_home, """\
  - step: fetch
    tool:
      kind: python
      code: |
        a = 1
        b = = 2
""")  # fmt: skip
    assert "PY_SyntaxError: invalid syntax" in result.stderr
    assert ">   11 |         b = = 2" in result.stderr


@pytest.mark.parametrize(
    ("written", "expression", "suggestion"),
    [
        ("{{ custmer }}", "{{ custmer }}", "did you mean 'customer'?"),
        ("{{ workload.custmer }}", "{{ workload.custmer }}", "did you mean 'workload.customer'?"),
        ("{{ ctx.missing }}", "{{ ctx.missing }}", None),
        ("{{ zzz }}", "{{ zzz }}", "names there: ctx, customer, rows, workload"),
    ],
)
def test_a_template_with_a_name_that_is_not_there(
    new_home: Home, written: str, expression: str, suggestion: str | None
) -> None:
    result = fail(new_home, f"""\
  - step: fetch
    tool:
      - name: ask
        kind: duckdb
        command: |
          SELECT 1;
          SELECT '{written}';
""")  # fmt: skip
    assert "step 'fetch': TEMPLATE_UNDEFINED: task 'ask':" in result.stderr
    assert ">   12 |" in result.stderr
    assert marked(result) == expression
    assert suggestion is None or suggestion in result.stderr
    assert "{{ name | default('') }}" in result.stderr


def test_a_loop_over_a_name_that_is_not_there(new_home: Home) -> None:
    result = fail(new_home, """\
  - step: each
    loop: {in: "{{ rows + rowz.x() }}", iterator: row}
    tool: {kind: noop}
""")  # fmt: skip
    assert marked(result) == "{{ rows + rowz.x() }}"
    assert "did you mean 'rows'?" in result.stderr


async def test_a_server_that_refuses(new_home: Home) -> None:
    async with serving() as server:
        body = json.dumps({"detail": "no such order", "padding": "x" * 1000})
        server.answer("/orders", 404, text=body, content_type="application/json")
        steps = f"""\
  - step: fetch
    tool: {{kind: http, url: "{server.url}/orders?token=planted-secret"}}
"""
        result = await asyncio.to_thread(fail, new_home, steps)
    assert f"HTTP_404: GET {server.url}/orders answered 404 Not Found" in result.stderr
    body_line = next(line for line in result.stderr.splitlines() if "it answered:" in line)
    assert '"detail":"no such order"' in body_line
    assert len(body_line) < 330
    assert "planted-secret" not in result.stderr.replace(" | ", "").split("t.yaml:")[0]


async def test_an_error_that_may_pass_suggests_to_try_again(new_home: Home) -> None:
    async with serving() as server:
        server.answer("/", 503)
        steps = f'  - {{step: fetch, tool: {{kind: http, url: "{server.url}/"}}}}\n'
        result = await asyncio.to_thread(fail, new_home, steps)
    assert "try: let it try again: spec.policy.rules with do: retry" in result.stderr


def test_a_statement_that_duckdb_refuses(new_home: Home) -> None:
    result = fail(new_home, """\
  - step: fetch
    tool:
      kind: duckdb
      command: |
        CREATE TABLE t (a int);
        SELECT a,
               bb
        FROM t;
""")  # fmt: skip
    assert "statement 2 of 2 (command_1)" in result.stderr
    assert ">   12 |" in result.stderr
    assert marked(result) == "bb"


def test_a_statement_that_postgres_refuses(new_home: Home, postgres: Database) -> None:
    given = write(new_home, json.dumps(postgres.credential), "pg.json")
    assert new_home.run("credential", "add", "pg", "--type", "postgres", "--file", given).code == 0
    result = fail(new_home, """\
  - step: fetch
    tool:
      kind: postgres
      auth: pg
      commands:
        - SELECT 1
        - |
          SELECT 2,
                 nothing_here
""")  # fmt: skip
    assert 'PG_42703: statement 2 of 2 (command_1): column "nothing_here" does not exist at line 2' in result.stderr
    assert marked(result) == "nothing_here"


def test_a_credential_that_is_not_there(new_home: Home) -> None:
    result = fail(new_home, """\
  - step: fetch
    tool: {kind: postgres, auth: pg_main, command: SELECT 1}
""")  # fmt: skip
    assert "CREDENTIAL_UNAVAILABLE: there is no credential 'pg_main'" in result.stderr
    assert marked(result).startswith("pg_main")
    assert "try: noetl credential add pg_main --type postgres --prompt" in result.stderr
    assert "noetl logs" not in result.stderr


SLOW = 'code: "import time; time.sleep(60)"'


@pytest.mark.parametrize(
    ("root", "steps", "limit"),
    [
        ("", f"  - {{step: s, spec: {{timeout: 0.2}}, tool: {{kind: python, {SLOW}}}}}\n", "spec.timeout of the step"),
        ("", f"  - {{step: s, tool: {{kind: python, spec: {{timeout: 0.2}}, {SLOW}}}}}\n", "spec.timeout of the task"),
        (
            "executor: {spec: {policy: {defaults: {timeout_s: 0.2}}}}\n",
            f"  - {{step: s, tool: {{kind: python, {SLOW}}}}}\n", "executor.spec.policy.defaults.timeout_s",
        ),
    ],
)  # fmt: skip
def test_a_limit_that_was_passed(new_home: Home, root: str, steps: str, limit: str) -> None:
    text = HEAD.replace("workflow:", f"{root}workflow:") + steps
    result = new_home.run("run", write(new_home, text).name)
    assert result.code == 1
    assert "TIMEOUT: " in result.stderr
    assert "took longer than 0.2 s" in result.stderr
    assert f"the limit is {limit}" in result.stderr
    assert marked(result).startswith("0.2")


CHILD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: inner, path: team/inner}
workflow:
  - step: deep
    tool:
      kind: python
      code: |
        result = {}["missing"]
---
"""


def test_a_call_that_failed_leads_into_what_was_called(new_home: Home) -> None:
    text = CHILD + HEAD + "  - {step: call, tool: {kind: playbook, path: team/inner}}\n"
    result = new_home.run("run", write(new_home, text).name)
    assert result.code == 1
    executions: list[dict[str, Any]] = new_home.json("list")["executions"]
    (child,) = [one["execution_id"] for one in executions if one["path"] == "team/inner"]
    assert "step 'call': CHILD_FAILED: KeyError: 'missing'" in result.stderr
    assert f"because in execution {child}:" in result.stderr
    assert "step 'deep': PY_KeyError: KeyError: 'missing'" in result.stderr
    assert '    >    9 |         result = {}["missing"]' in result.stderr
    assert f"noetl logs {child} --step deep" in result.stderr
    assert f"noetl retry {execution_of(result)} --from call" in result.stderr


def test_a_playbook_that_is_not_registered(new_home: Home) -> None:
    result = fail(new_home, "  - {step: call, tool: {kind: playbook, path: team/nowhere}}\n")
    assert "PLAYBOOK_NOT_FOUND" in result.stderr
    assert "try: noetl catalog list" in result.stderr


def test_iterations_that_failed(new_home: Home) -> None:
    result = fail(new_home, """\
  - step: each
    loop: {in: "{{ rows }}", iterator: row}
    tool:
      kind: python
      input: {row: "{{ row }}"}
      code: |
        if row > 1: raise ValueError(f"row {row}")
""")  # fmt: skip
    assert "✗ each" in result.stderr
    assert "3 iterations, 2 failed" in result.stderr
    assert "step 'each': PY_ValueError: row 2" in result.stderr
    assert "2 of 3 iterations failed, the first at index 1" in result.stderr
    assert ">   12 |         if row > 1: raise ValueError" in result.stderr


def test_iterations_of_a_pipeline_name_the_task_also_when_results_are_large(new_home: Home) -> None:
    result = fail(new_home, """\
  - step: each
    loop: {in: "{{ range(100) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 8}}
    tool:
      - {name: one, kind: python, code: "result = 'x' * 2000"}
      - name: two
        kind: python
        input: {n: "{{ n }}"}
        code: |
          if n in (17, 30): raise RuntimeError("no")
          result = "y" * 2000
""")  # fmt: skip
    assert "step 'each', task 'two': PY_RuntimeError: no" in result.stderr
    assert marked(result) == 'raise RuntimeError("no")'
    assert "2 of 100 iterations failed, the first at index" in result.stderr
    assert "names there: n" in result.stderr


def test_no_arc_that_matches(new_home: Home) -> None:
    text = (
        HEAD.replace("workflow:", "executor: {spec: {no_next_is_error: true}}\nworkflow:")
        + """\
  - step: a
    tool: {kind: noop}
    next: {arcs: [{step: b, when: "{{ false }}"}]}
  - {step: b, tool: {kind: noop}}
"""
    )
    result = new_home.run("run", write(new_home, text).name)
    assert result.code == 1
    assert "step 'a': NO_ARC_MATCHED" in result.stderr
    assert marked(result).startswith("{arcs:")
    assert "add an arc without `when`" in result.stderr


def test_names_that_a_shell_would_take_apart_are_quoted(new_home: Home) -> None:
    result = fail(new_home, "  - {step: it's me, tool: {kind: shell, command: exit 3}}\n")
    assert "EXIT_3" in result.stderr
    assert """--step 'it'"'"'s me'""" in result.stderr
