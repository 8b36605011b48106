"""Running playbooks as people and scripts do it: what goes in, what comes out, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import PROJECT_ROOT, Home
from tests.e2e.scenes import END, Scene, at_the_gate, book, chain, task
from tests.services.collector import collecting

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: team/t}\n"
ECHO = (
    HEAD
    + """\
workload: {who: world, n: 1}
workflow:
  - step: start
    tool: {kind: noop, result: {who: "{{ who }}", n: "{{ n }}", all: "{{ workload }}"}}
    next: {arcs: [{step: last}]}
  - {step: last, tool: {kind: noop, result: {who: "{{ who }}", n: "{{ n }}", started: "{{ start is defined }}"}}}
"""
)
BROKEN = (
    HEAD
    + """\
workflow:
  - step: start
    tol: {kind: noop}
    next: {arcs: [{step: lats}, {when: "{{ x"}]}
  - {step: start, tool: {kind: pyton}}
"""
)
FAILING = (
    HEAD
    + """\
workflow:
  - step: fetch
    tool:
      kind: python
      code: |
        rows = [1, 2]
        # the next line is at fault
        result = rows[7]
"""
)


def write(tmp_path: Path, text: str, name: str = "t.yaml") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    return write(tmp_path, ECHO)


# --- What goes in -----------------------------------------------------------------------------------------


def test_the_document_that_scripts_rely_on(new_home: Home, echo: Path) -> None:
    document = new_home.json("run", echo)
    assert set(document) >= {
        "execution_id", "status", "result", "error", "started_at", "ended_at", "duration_ms", "events", "checksum",
    }  # fmt: skip
    assert document["execution_id"].isdecimal()
    assert (document["status"], document["error"], document["path"]) == ("COMPLETED", None, "team/t")
    assert document["started_at"] <= document["ended_at"]
    assert document["started_at"].endswith("Z")
    assert document["duration_ms"] >= 0
    events = new_home.json("events", document["execution_id"], "--limit", "100")["events"]
    assert document["events"] == len(events)
    assert document["checksum"] == new_home.json("replay", document["execution_id"])["checksum"]
    assert new_home.json("status", document["execution_id"]) == document


@pytest.mark.parametrize(
    ("arguments", "who", "n"),
    [
        ((), "world", 1),
        (("--set", "who=you"), "you", 1),
        (("--set", "n=2", "--set", "who=a=b"), "a=b", 2),
        (("--set", 'who={"first": "Ada"}'), {"first": "Ada"}, 1),
        (("--set", "who="), "", 1),
        (("--set", "who={{ n }}"), "{{ n }}", 1),
        (("--payload", '{"who": "them", "n": null}'), "them", None),
        (("--payload", '{"who": "them", "n": 5}', "--set", "n=6"), "them", 6),
        (("--payload", "@given.json"), "from a file", 1),
    ],
)  # fmt: skip
def test_values_of_the_workload(
    arguments: tuple[str, ...], who: Any, n: Any, new_home: Home, echo: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write(echo.parent, '{"who": "from a file"}', "given.json")
    monkeypatch.chdir(echo.parent)
    result = new_home.here(capsys, "run", echo, *arguments, "--json").document["result"]
    assert (result["who"], result["n"]) == (who, n)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "who"), "--set who: there is no '='"),
        (("--set", "=you"), "--set =you: there is no '='"),
        (("--payload", "[1]"), "--payload is not a JSON object"),
        (("--payload", "{"), "--payload is not a JSON object"),
        (("--payload", "@nowhere.json"), "cannot read nowhere.json: No such file"),
        (("-t", "nowhere"), "there is no step 'nowhere' in team/t"),
        (("--dry-run", "-t", "nowhere"), "there is no step 'nowhere' in team/t"),
    ],
)
def test_bad_values_are_refused(
    arguments: tuple[str, ...], message: str, new_home: Home, echo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = new_home.here(capsys, "run", echo, *arguments)
    assert refused.code == 2
    assert message in refused.stderr
    if "-t" not in arguments:
        assert not new_home.path.exists()


def test_a_run_may_begin_at_another_step(new_home: Home, echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new_home.here(capsys, "run", echo, "--json").document["result"]["started"] is True
    assert new_home.here(capsys, "run", echo, "-t", "last", "--json").document["result"]["started"] is False


def test_the_same_key_is_the_same_execution(new_home: Home, echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (
        new_home.here(capsys, "run", echo, "--key", key, "--json").document for key in ("monday", "monday", "tuesday")
    )
    assert first == again
    assert other["execution_id"] != first["execution_id"]


def test_spans_of_a_run_go_to_a_collector(new_home: Home) -> None:
    with collecting() as collector:
        new_home.json("run", PROJECT_ROOT / "examples" / "01_hello.yaml", env={"NOETL_OBSERVE__OTLP": collector.url})
        told = collector.wait(lambda spans: any(span.name == "noetl.execution" for span in spans))
    assert {span.name for span in told} >= {"noetl.command", "noetl.task", "noetl.append"}
    assert {span.service for span in told} == {"noetl"}
    assert len({span.trace_id for span in told}) == 1


def test_a_collector_that_is_away_costs_spans_and_nothing_else(new_home: Home, echo: Path) -> None:
    ran = new_home.run("run", echo, "--json", env={"NOETL_OBSERVE__OTLP": "http://127.0.0.1:1"})
    assert (ran.code, ran.document["status"]) == (0, "COMPLETED")


def test_a_run_is_in_the_trace_of_whoever_has_started_it(new_home: Home, echo: Path) -> None:
    place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    ran = new_home.json("run", echo, env={"TRACEPARENT": place})
    assert new_home.json("events", ran["execution_id"])["events"][0]["meta"]["trace"] == {"traceparent": place}


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_dry_run_checks_and_makes_nothing(form: str, new_home: Home, echo: Path) -> None:
    checked = new_home.run("run", echo, "--dry-run", *(["--json"] if form == "json" else []))
    assert checked.code == 0
    assert not new_home.path.exists()
    if form == "json":
        assert checked.document == {"file": str(echo), "path": "team/t", "ok": True, "entry": "start"}
    else:
        assert f"{echo} is valid" in checked.stderr


def test_a_bad_document_shows_everything_and_makes_nothing(new_home: Home, tmp_path: Path) -> None:
    file = write(tmp_path, BROKEN)
    for more in ((), ("--dry-run",), ("--json",)):
        refused = new_home.run("run", file, *more)
        assert refused.code == 2
        for said in (f"{file}:6:", f"{file}:7:", f"{file}:8:", "did you mean", "lats", "pyton"):
            assert said in refused.stderr
        assert "nothing was run" in refused.stderr
        assert not new_home.path.exists()


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("nowhere.yaml", "there is no file nowhere.yaml"),
        ("team/nowhere", "neither a file nor a registered playbook 'team/nowhere'"),
        (".", ". is a directory"),
        ("empty.yaml", "the file holds no document"),
        ("bytes.yaml", "it is not UTF-8 text"),
    ],
)
def test_what_is_not_there_is_said(ref: str, message: str, new_home: Home, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    refused = new_home.run("run", ref)
    assert refused.code == 2
    assert message in refused.stderr
    assert not new_home.path.exists()


# --- What comes out ---------------------------------------------------------------------------------------


def test_a_person_sees_steps_and_gets_the_result(new_home: Home, echo: Path) -> None:
    shown = new_home.run("run", echo)
    assert json.loads(shown.stdout) == {"who": "world", "n": 1, "started": True}
    assert "✓ start" in shown.stderr
    assert "✓ last" in shown.stderr
    assert "COMPLETED" in shown.stderr


def test_a_failure_says_where_and_why(new_home: Home, tmp_path: Path) -> None:
    file = write(tmp_path, FAILING)
    shown = new_home.run("run", file)
    assert (shown.code, shown.stdout) == (1, "")
    assert "✗ fetch" in shown.stderr
    assert "step 'fetch': PY_IndexError: list index out of range" in shown.stderr
    assert f"{file}:11" in shown.stderr
    assert "11 |         result = rows[7]" in shown.stderr
    assert "try: noetl logs" in shown.stderr


def test_a_failure_in_the_second_document_names_the_line_of_the_file(new_home: Home, tmp_path: Path) -> None:
    file = write(tmp_path, ECHO.replace("team/t", "team/first") + "---\n" + FAILING)
    shown = new_home.run("run", file)
    assert shown.code == 1
    line = 11 + ECHO.count("\n") + 1
    assert f"{file}:{line}" in shown.stderr
    assert f"{line} |         result = rows[7]" in shown.stderr


def test_a_failure_as_a_document(new_home: Home, tmp_path: Path) -> None:
    ended = new_home.run("run", write(tmp_path, FAILING), "--json")
    assert ended.code == 1
    assert ended.document["status"] == "FAILED"
    assert ended.document["error"]["code"] == "PY_IndexError"
    assert ended.document["error"]["kind"] == "schema"
    status = new_home.run("status", ended.document["execution_id"], "--json")
    assert (status.code, status.document) == (1, ended.document)


def test_results_of_steps(new_home: Home, echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execution = new_home.json("run", echo)["execution_id"]
    first = new_home.here(capsys, "result", execution, "start", "--json").document
    assert (first["execution_id"], first["step"], first["value"]["who"]) == (execution, "start", "world")
    assert (first["rows"], len(first["sha256"])) == (None, 64)
    assert new_home.here(capsys, "result", execution, "--json").document["step"] == "last"
    assert json.loads(new_home.here(capsys, "result", execution).stdout)["started"] is True
    missing = new_home.here(capsys, "result", execution, "nowhere")
    assert missing.code == 2
    assert "steps that ended: last, start" in missing.stderr


@pytest.mark.parametrize("command", ["status", "result", "cancel", "resume"])
def test_an_execution_that_is_not_there(
    command: str, new_home: Home, echo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_home.here(capsys, "run", echo, "--json")
    for name, message in (("12345", "there is no execution 12345"), ("x", "'x' is not an execution id")):
        refused = new_home.here(capsys, command, name)
        assert refused.code == 2
        assert message in refused.stderr


# --- The catalog ------------------------------------------------------------------------------------------


def test_registered_playbooks_run_by_path_and_version(
    new_home: Home, echo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*args: str) -> Any:
        return new_home.here(capsys, "run", *args, "--json").document

    for number in (1, 2):
        write(echo.parent, ECHO.replace("n: 1", f"n: {number}"))
        (entry,) = new_home.here(capsys, "register", echo, "--json").document["registered"]
        assert (entry["path"], entry["version"], entry["kind"]) == ("team/t", number, "Playbook")
    for args, n in (
        (("team/t",), 2), (("/team/t/",), 2), (("team/t@1",), 1), (("catalog://team/t@2",), 2),
        (("catalog://team/t",), 2), (("team/t", "-V", "1"), 1),
    ):  # fmt: skip
        document = run(*args)
        assert document["result"]["n"] == n
        opening = new_home.here(capsys, "events", document["execution_id"], "--limit", "1", "--json").document[
            "events"
        ][0]
        assert opening["payload"]["document"]["origin"] == "catalog"
    before = len(new_home.here(capsys, "list", "--json").document["executions"])
    assert new_home.here(capsys, "run", "team/t", "--dry-run").code == 0
    for args, message in (
        (("team/t@9",), "no 'team/t' in version 9"), (("team/t", "-V", "new"), "'new' is not a version"),
        (("team/u",), "neither a file nor a registered playbook"),
    ):  # fmt: skip
        refused = new_home.here(capsys, "run", *args)
        assert (refused.code, message in refused.stderr) == (2, True), refused
    assert len(new_home.here(capsys, "list", "--json").document["executions"]) == before


def test_a_bad_file_registers_nothing(new_home: Home, tmp_path: Path) -> None:
    refused = new_home.run("register", write(tmp_path, ECHO + "---\n" + BROKEN))
    assert refused.code == 2
    assert "pyton" in refused.stderr
    assert not new_home.path.exists()


def test_other_documents_of_a_file_are_registered_once(
    new_home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, ECHO.replace("team/t", "team/first") + "---\n" + ECHO)
    for _ in range(3):
        assert new_home.here(capsys, "run", file, "--json").document["path"] == "team/t"
    assert new_home.here(capsys, "run", "team/first@1", "--json").code == 0
    assert new_home.here(capsys, "run", "team/first@2", "--json").code == 2
    assert new_home.here(capsys, "run", "team/t", "--json").code == 2, "what ran was not registered"


# --- Ended from outside -----------------------------------------------------------------------------------


def said(process: subprocess.Popen[bytes], text: bytes) -> bool:
    """Read standard error up to the line that says something."""
    assert process.stderr is not None
    return any(text in line for line in iter(process.stderr.readline, b""))


def test_an_interrupt_cancels_and_lets_what_runs_finish(scene: Scene) -> None:
    with at_the_gate(scene, "run", chain(scene), "--set", "stop=b", "--json") as process:
        process.send_signal(signal.SIGINT)
        assert said(process, b"cancelling")
        scene.gate.open("w").close()
        stdout, _ = process.communicate(timeout=END)
    document = json.loads(stdout)
    assert (process.returncode, document["status"]) == (1, "CANCELLED")
    assert sorted(scene.effects) == ["a", "b"]
    types = [
        event["event_type"] for event in scene.home.json("events", document["execution_id"], "--limit", "99")["events"]
    ]
    assert types[-4:] == ["playbook.cancelled", "command.claimed", "command.started", "command.cancelled"]
    assert scene.home.json("verify", document["execution_id"])["parity"]
    again = scene.home.run("resume", document["execution_id"], "--json")
    assert (again.code, again.document["status"]) == (1, "CANCELLED")


def test_a_second_interrupt_stops_at_once(scene: Scene) -> None:
    with at_the_gate(scene, "run", chain(scene), "--set", "stop=b") as process:
        process.send_signal(signal.SIGINT)
        assert said(process, b"cancelling")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=END)
    assert process.returncode == 130
    (execution,) = scene.roots()
    assert scene.home.run("verify", execution).code == 0


def test_cancelled_by_another_process(scene: Scene) -> None:
    with at_the_gate(scene, "run", chain(scene), "--set", "stop=b", "--json") as process:
        (execution,) = scene.roots()
        assert scene.home.json("status", execution)["status"] == "RUNNING"
        ended = scene.home.json("cancel", execution, "--reason", "wrong day")
        assert ended == {"execution_id": execution, "status": "cancelled", "cancelled_executions": [execution]}
        assert scene.home.json("cancel", execution)["status"] == "already_completed"
        scene.gate.open("w").close()
        stdout, _ = process.communicate(timeout=END)
    assert (process.returncode, json.loads(stdout)["status"]) == (1, "CANCELLED")
    assert sorted(scene.effects) == ["a", "b"]
    assert scene.home.run("status", execution).code == 1
    assert scene.home.json("verify", execution)["parity"]


def test_a_cancellation_reaches_the_playbooks_that_were_called(scene: Scene) -> None:
    child = book("child", {"step": "x", "tool": task("x", scene)}, {"step": "y", "tool": task("y", scene)})
    call = {"kind": "playbook", "path": "child", "input": {"stop": "{{ stop }}"}}
    file = scene.write(child, book("parent", {"step": "call", "tool": call}))
    with at_the_gate(scene, "run", file, "--set", "stop=x", "--json") as process:
        (execution,) = scene.roots()
        assert len(scene.home.json("cancel", execution)["cancelled_executions"]) == 2
        scene.gate.open("w").close()
        stdout, _ = process.communicate(timeout=END)
    assert json.loads(stdout)["status"] == "CANCELLED"
    assert sorted(scene.effects) == ["x"]
    assert {one["status"] for one in scene.home.json("list")["executions"]} == {"CANCELLED"}
    assert scene.home.run("verify", "--all").code == 0


def test_a_pipe_that_is_closed_early_harms_nothing(new_home: Home, echo: Path) -> None:
    process = new_home.start("run", echo)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, stderr = process.communicate(timeout=END)
    assert b"Traceback" not in stderr
    assert new_home.run("verify", "--all").code == 0
