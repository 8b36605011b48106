"""What a shell is told when somebody presses tab."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from noetl.cli.completion import SHELLS
from tests.e2e.cli import COMMAND, Home, Result

DOCUMENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: team/t}
workflow:
  - {step: load, desc: get it, tool: {kind: noop}, next: {arcs: [{step: report}]}}
  - {step: report, tool: {kind: noop}}
"""


@pytest.fixture
def filled(new_home: Home, tmp_path: Path) -> Home:
    (tmp_path / "t.yaml").write_text(DOCUMENT, encoding="utf-8")
    new_home.json("register", "t.yaml")
    return new_home


def ask(home: Home, line: str, **env: str) -> Result:
    words = line.split(" ")
    asked = {"_NOETL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), **env}
    return home.run(env=asked)


def offered(home: Home, line: str) -> list[str]:
    answer = ask(home, line)
    assert (answer.code, answer.stderr) == (0, "")
    return [item.partition(",")[2] for item in answer.stdout.split()]


def test_commands_and_options(new_home: Home) -> None:
    assert {"logs", "list"} <= set(offered(new_home, "noetl l"))
    assert offered(new_home, "noetl catalog ") == ["list", "show"]
    assert {"--follow", "--step", "--tail"} <= set(offered(new_home, "noetl logs --"))
    assert offered(new_home, "noetl list --status CO") == ["COMPLETED"]
    assert offered(new_home, "noetl completion ") == list(SHELLS)


def test_executions_newest_first(filled: Home) -> None:
    ids = [filled.json("run", "t.yaml")["execution_id"] for _ in range(2)]
    assert offered(filled, "noetl status ") == ids[::-1]
    assert offered(filled, f"noetl logs {ids[0][:-1]}") == [one for one in ids[::-1] if one.startswith(ids[0][:-1])]


def test_steps_of_a_file_of_the_catalog_and_of_an_execution(filled: Home) -> None:
    execution = filled.json("run", "t.yaml")["execution_id"]
    assert offered(filled, "noetl run t.yaml -t ") == ["load", "report"]
    assert offered(filled, "noetl run team/t -t rep") == ["report"]
    assert offered(filled, f"noetl logs {execution} --step l") == ["load"]
    assert offered(filled, f"noetl result {execution} ") == ["load", "report"]


def test_files_and_registered_paths(filled: Home) -> None:
    assert ask(filled, "noetl run t.").stdout == "file,t.\n", "the shell completes files itself"
    assert offered(filled, "noetl run team/") == ["team/t"]
    assert offered(filled, "noetl catalog show te") == ["team/t"]
    assert ask(filled, "noetl validate ").stdout == "file,\n"


def test_types_of_events(new_home: Home) -> None:
    assert offered(new_home, "noetl events 1 --type frame.c") == ["frame.committed"]


@pytest.mark.parametrize(
    "line", ["noetl status ", "noetl run nowhere.yaml -t ", "noetl logs 1 --step ", "noetl logs x --step "]
)
def test_what_cannot_be_found_out_disturbs_nobody(new_home: Home, line: str) -> None:
    assert offered(new_home, line) == []
    assert not new_home.path.exists()
    new_home.path.mkdir()
    new_home.ledger.write_bytes(b"this is no database")
    assert offered(new_home, line) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell(new_home: Home, shell: str) -> None:
    script = new_home.run("completion", shell)
    assert script.code == 0
    assert f"_NOETL_COMPLETE={shell}_complete" in script.stdout


def test_no_such_shell(new_home: Home) -> None:
    refused = new_home.run("completion", "tcsh")
    assert (refused.code, "'bash', 'zsh', 'fish'" in refused.stderr) == (2, True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_itself(filled: Home, tmp_path: Path) -> None:
    """The script, run by the shell it is for, with a `noetl` on the path."""
    command = tmp_path / "bin" / "noetl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    asked = 'COMP_WORDS=(noetl run t.yaml -t r); COMP_CWORD=4; _noetl_completion noetl; echo "${COMPREPLY[*]}"'
    env = {**filled.environment(), "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f'eval "$(noetl completion bash)"; {asked}'],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("report\n", "")
