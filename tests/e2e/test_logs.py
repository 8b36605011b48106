"""What tasks print: kept, found again, followed, and without secrets."""

from __future__ import annotations

import json
import select
from pathlib import Path

import pytest

from tests.e2e.cli import Home
from tests.e2e.scenes import END, Scene, running

SECRET = "PLANTED-s3cr3t-94/71"
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: team/t}
workload: {rows: [7, 8]}
workflow:
  - step: load
    tool:
      kind: python
      input: {bad: "{{ rows + 1 }}"}
      code: |
        print("hello\\x1b[2J")
        print("world")
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ rows }}", iterator: row}
    tool:
      - name: first
        kind: shell
        command: "echo row {{ row }}; echo careful >&2"
      - name: second
        kind: python
        input: {attempt: "{{ _attempt }}", row: "{{ row }}"}
        code: |
          print("try", attempt)
          if attempt == 1: raise ConnectionError("no")
        spec: {policy: {rules: [{when: "{{ output.error.retryable }}", then: {do: retry, attempts: 2}}]}}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, str]:
    place = tmp_path_factory.mktemp("logs")
    (place / "t.yaml").write_text(PLAYBOOK, encoding="utf-8")
    home = Home(place / "home")
    return home, home.json("run", "t.yaml")["execution_id"]


def origins(text: str) -> list[str]:
    """Lines without their times."""
    return [line.partition(" ")[2] for line in text.splitlines()]


def test_everything_that_was_printed_with_where_it_is_from(done: tuple[Home, str]) -> None:
    home, execution = done
    shown = home.run("logs", execution)
    assert shown.code == 0
    lines = origins(shown.stdout)
    assert lines[:2] == [r"load  hello\x1b[2J", "load  world"]
    assert lines[2].startswith("load noetl:  task 'load_task': "), "a warning stands where it happened"
    assert sorted(lines[3:]) == sorted(
        line
        for index in (0, 1)
        for line in (
            f"each[{index}]/first  row {index + 7}", f"each[{index}]/first  careful",
            f"each[{index}]/second  try 1", f"each[{index}]/second#2  try 2",
        )
    )  # fmt: skip
    assert "\x1b" not in shown.stdout


@pytest.mark.parametrize(
    ("options", "count"),
    [(("--step", "load"), 3), (("--step", "each"), 8), (("--task", "second"), 4), (("--tail", "2"), 2),
     (("--step", "load", "--tail", "1"), 1), (("--step", "each", "--task", "first"), 4)],
)  # fmt: skip
def test_some_of_it(done: tuple[Home, str], options: tuple[str, ...], count: int) -> None:
    home, execution = done
    assert len(home.run("logs", execution, *options).stdout.splitlines()) == count
    assert len(home.json("logs", execution, *options)["lines"]) == count


def test_the_document(done: tuple[Home, str]) -> None:
    home, execution = done
    document = home.json("logs", execution)
    assert (document["execution_id"], document["damaged"]) == (execution, 0)
    times = [line["time"] for line in document["lines"]]
    assert times == sorted(times)
    streams = {line["stream"] for line in document["lines"]}
    assert streams == {"output", "stdout", "stderr", "noetl"}
    (line,) = [line for line in document["lines"] if line["text"] == "row 8"]
    assert {name: line[name] for name in ("step", "task", "index", "attempt")} == {
        "step": "each", "task": "first", "index": 1, "attempt": 1,
    }  # fmt: skip


def test_an_execution_that_has_ended_is_followed_to_its_end(done: tuple[Home, str]) -> None:
    home, execution = done
    followed = home.run("logs", execution, "--follow", "--json")
    assert followed.code == 0
    lines = [json.loads(line) for line in followed.stdout.splitlines()]
    assert sorted(lines, key=json.dumps) == sorted(home.json("logs", execution)["lines"], key=json.dumps)


def test_nothing_printed_and_nothing_there(new_home: Home, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(PLAYBOOK.partition("  - step")[0] + "  - {step: a, tool: {kind: noop}}\n", encoding="utf-8")
    execution = new_home.json("run", file)["execution_id"]
    silent = new_home.run("logs", execution)
    assert (silent.code, silent.stdout, silent.stderr) == (0, "", "nothing was printed\n")
    for name, message in (("12345", "there is no execution 12345"), ("x", "'x' is not an execution id")):
        refused = new_home.run("logs", name)
        assert (refused.code, message in refused.stderr) == (2, True), refused


def test_lines_are_followed_while_it_runs(scene: Scene) -> None:
    code = 'print("at the gate", flush=True)\nopen(place + "/gate").read()\nprint("through")\n'
    document = {
        "apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "t", "path": "t"},
        "workflow": [{"step": "wait", "tool": {"kind": "python", "input": {"place": str(scene.place)}, "code": code}}],
    }  # fmt: skip
    with running(scene.home, "run", scene.write(document)) as process:
        assert process.stderr is not None
        while not (files := list(scene.home.path.glob("logs/executions/*.jsonl"))):
            assert process.poll() is None
            select.select([], [], [], 0.001)
        with running(scene.home, "logs", files[0].stem, "-f", "--tail", "5") as following:
            assert following.stdout is not None
            assert b"at the gate" in following.stdout.readline()
            scene.gate.open("w").close()
            assert following.stdout.readline().endswith(b"wait  through\n")
            assert following.stdout.readline() == b""
            assert following.wait(END) == 0
        assert process.wait(END) == 0


def test_secrets_are_masked_before_they_are_kept(new_home: Home, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"token": SECRET}), encoding="utf-8")
    assert new_home.run("credential", "add", "api", "--type", "bearer", "--file", tmp_path / "c.json").code == 0
    file = tmp_path / "t.yaml"
    file.write_text("""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t}
workflow:
  - step: leak
    tool: {kind: shell, auth: api, command: "printf '%s' $TOKEN; sleep 0.01; echo; echo $TOKEN >&2; echo done"}
""", encoding="utf-8")  # fmt: skip
    execution = new_home.json("run", file)["execution_id"]
    texts = [line["text"] for line in new_home.json("logs", execution)["lines"]]
    assert sorted(texts) == ["***", "***", "done"]
    for kept in new_home.path.rglob("logs/**/*.jsonl"):
        assert SECRET not in kept.read_text(encoding="utf-8")


def test_a_place_that_cannot_be_written_costs_lines_only(new_home: Home, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(PLAYBOOK, encoding="utf-8")
    new_home.path.mkdir(mode=0o700)
    (new_home.path / "logs").touch()
    done = new_home.run("run", file)
    assert done.code == 0
    assert done.stderr.count("what tasks print cannot be kept in") == 1
    assert "the run goes on" in done.stderr
