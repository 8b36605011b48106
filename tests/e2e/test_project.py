"""A newcomer's first minute: a project, a run, a look at the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec


def noetl(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("NOETL_")}
    command = [sys.executable, "-m", "noetl", *arguments]
    return subprocess.run(command, cwd=cwd, env={**plain, **environment}, capture_output=True, text=True, check=False)


def document(answer: subprocess.CompletedProcess[str]) -> Any:
    assert answer.returncode == 0, answer.stderr
    return msgspec.json.decode(answer.stdout)


def test_a_new_project_runs_at_once_and_keeps_everything_in_itself(tmp_path: Path) -> None:
    made = noetl("init", "shop", cwd=tmp_path)
    assert made.returncode == 0
    assert "noetl run hello.yaml" in made.stdout
    ran = document(noetl("run", "hello.yaml", "--set", "who=Ada", "--json", cwd=tmp_path / "shop"))
    assert (ran["status"], ran["result"]) == ("COMPLETED", {"shouted": "HELLO, ADA!"})
    assert {path.name for path in (tmp_path / "shop").iterdir()} == {".gitignore", ".noetl", "hello.yaml", "noetl.toml"}
    assert document(noetl("verify", ran["execution_id"], "--json", cwd=tmp_path / "shop"))["ok"]


def test_init_leaves_files_alone_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text("mine", encoding="utf-8")
    assert "kept" in noetl("init", cwd=tmp_path).stdout
    assert (tmp_path / "hello.yaml").read_text(encoding="utf-8") == "mine"


def test_init_does_not_take_a_file_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("", encoding="utf-8")
    answer = noetl("init", "there", cwd=tmp_path)
    assert answer.returncode == 2
    assert "is not a folder" in answer.stderr


def test_doctor_finds_nothing_wrong_here(tmp_path: Path) -> None:
    found = document(noetl("doctor", "--json", cwd=tmp_path, NOETL_HOME=str(tmp_path / "home")))
    assert found["ok"]
    assert {item["what"] for item in found["checks"]} == {
        "python", "sqlite", "settings", "home", "disk", "memory", "clock", "java", "spark",
    }  # fmt: skip


def test_doctor_compares_shared_memory_with_its_budget(tmp_path: Path) -> None:
    answer = noetl("doctor", cwd=tmp_path, NOETL_PAYLOADS__SHARED_MEMORY="100TiB")
    assert answer.returncode == 0
    assert "tables may take 100TiB" in answer.stdout
    assert "fix: make it larger (containers: --shm-size), or lower payloads.shared_memory" in answer.stdout
    off = noetl("doctor", cwd=tmp_path, NOETL_PAYLOADS__SHARED_MEMORY="0")
    assert "tables are not shared: payloads.shared_memory is 0" in off.stdout


def test_doctor_names_what_is_wrong_and_how_to_fix_it(tmp_path: Path) -> None:
    (tmp_path / "noetl.toml").write_text("[ledgr]\n", encoding="utf-8")
    answer = noetl("doctor", cwd=tmp_path, PATH="")
    assert answer.returncode == 3
    assert "ledgr" in answer.stdout
    assert "fix: install a Java runtime of at least 17" in answer.stdout
