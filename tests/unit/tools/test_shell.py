"""The shell tool."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from noetl.tools.base import Call, Outcome
from noetl.tools.registry import Registry
from noetl.tools.shell import ShellTool
from tests.unit.tools.processes import is_gone, until


async def run(*cmds: str, directory: Path = Path(), timeout: float | None = 60.0, **more: Any) -> Outcome:  # noqa: ASYNC109
    auth = more.pop("auth", None)
    fields = {"cmds": list(cmds), **more} if cmds else more
    return await ShellTool().run(Call(kind="shell", fields=fields, directory=directory, timeout=timeout, auth=auth))


async def test_scripts_run_in_turn_in_the_directory_of_the_call(tmp_path: Path) -> None:
    outcome = await run("echo one > file; pwd", "cat file; echo oops >&2", directory=tmp_path)
    assert outcome.error is None
    duration = outcome.result.pop("duration_ms")
    assert isinstance(duration, int)
    assert outcome.result == {
        "status": "success",
        "stdout": f"{tmp_path}\none\n",
        "stderr": "oops\n",
        "returncode": 0,
        "exit_code": 0,
        "stdout_bytes": len(f"{tmp_path}\none\n"),
        "stderr_bytes": 5,
    }
    assert outcome.logs == f"{tmp_path}\none\noops\n"


async def test_the_first_that_fails_stops(tmp_path: Path) -> None:
    outcome = await run("echo before", "echo no such thing >&2; exit 7", "touch after", directory=tmp_path)
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["code"], outcome.error["retryable"]) == ("transform", "EXIT_7", False)
    assert outcome.error["message"] == "the command ended with exit code 7: no such thing"
    assert (outcome.result["status"], outcome.result["returncode"], outcome.result["exit_code"]) == ("error", 7, 7)
    assert outcome.result["stdout"] == "before\n"
    assert not (tmp_path / "after").exists()


async def test_a_shell_that_is_killed_has_the_code_that_a_shell_would_give() -> None:
    outcome = await run("kill -9 $$")
    assert outcome.error is not None
    assert outcome.error["code"] == "EXIT_137"


async def test_command_is_one_script() -> None:
    assert (await run(command="echo $((1 + 1))")).result["stdout"] == "2\n"


async def test_the_environment_is_small_and_what_the_task_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_SECRET", "hunter2")
    outcome = await run("env", env={"NAME": "a b", "COUNT": 3}, auth={"token": "t0ken"})
    lines = outcome.result["stdout"].splitlines()
    assert {"NAME=a b", "COUNT=3", "TOKEN=t0ken"} <= set(lines)
    assert not any(line.startswith(("NOETL", "PYTEST", "VIRTUAL")) for line in lines)


async def test_there_is_nothing_to_read() -> None:
    assert (await run("cat")).result["stdout"] == ""


async def test_what_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script = "sleep 1000 & echo $$ $! > pids; echo started; wait"
    outcome = await run(script, directory=tmp_path, timeout_seconds=1)
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["code"], outcome.error["retryable"]) == ("timeout", "TIMEOUT", True)
    assert outcome.result["stdout"] == "started\n"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    await until(lambda: all(is_gone(pid) for pid in pids))


async def test_the_time_of_the_attempt_counts_too() -> None:
    outcome = await run("sleep 1000", timeout=0.2)
    assert outcome.error is not None
    assert "0.2 s" in outcome.error["message"]


async def test_what_is_left_in_the_background_ends_with_the_script(tmp_path: Path) -> None:
    outcome = await run("sleep 1000 & echo $! > pid", directory=tmp_path)
    assert outcome.error is None
    await until(lambda: is_gone(int((tmp_path / "pid").read_text())))


async def test_cancelling_ends_the_processes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    task = asyncio.create_task(run("echo $$ > started; sleep 1000; true", directory=tmp_path, timeout=None))
    pid = int(await asyncio.to_thread((tmp_path / "started").read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: is_gone(pid))


async def test_output_is_bounded_and_counted() -> None:
    outcome = await run("head -c 3000000 /dev/zero | tr '\\0' x; head -c 2000000 /dev/zero | tr '\\0' y >&2")
    assert (outcome.result["stdout_bytes"], outcome.result["stderr_bytes"]) == (3_000_000, 2_000_000)
    assert len(outcome.result["stdout"]) < (1 << 20) + 100
    assert outcome.result["stdout"].endswith(f"... and {3_000_000 - (1 << 20)} bytes more")


@pytest.mark.parametrize(
    "fields",
    [{"cmds": []}, {"cmds": [1]}, {"command": "true", "env": "x"}, {"command": "true", "timeout_seconds": "x"}],
)
async def test_fields_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    outcome = await run(**fields)
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["code"]) == ("schema", "FIELD_INVALID")


async def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    outcome = await run("true", directory=tmp_path / "gone")
    assert outcome.error is not None
    assert outcome.error["kind"] == "transform"


async def test_the_registry_knows_it_and_asks_for_commands() -> None:
    registry = Registry()
    assert (await registry.run(Call(kind="shell", fields={"command": "echo hi"}))).result["stdout"] == "hi\n"
    missing = await registry.run(Call(kind="shell"))
    assert missing.error is not None
    assert missing.error["code"] == "FIELD_MISSING"
