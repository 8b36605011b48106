"""shell: run commands with /bin/sh (DSL 9.12)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, failed
from noetl.tools.processes import BoundedOutput, kill_group, minimal_environment, trace_variables, variables_of
from noetl.tools.values import BadField, seconds

__all__ = ["ShellTool"]

OUTPUT_LIMIT = 1 << 20
DEFAULT_TIMEOUT = 600.0
_LOG_LIMIT = 256 * 1024


class ShellTool:
    """Runs each script in turn, up to the first that fails. What a script leaves running ends with it."""

    kind = "shell"
    rendering: Mapping[str, Rendering] = {"cmds": "code", "command": "code"}
    required: tuple[tuple[str, ...], ...] = (("cmds", "command"),)

    def side_effecting(self, fields: Json) -> bool:
        """Nobody knows what a command does."""
        return True

    async def run(self, call: Call) -> Outcome:
        """Run the scripts of a call."""
        try:
            scripts = _scripts(call)
            limit = _limit(call)
            environment = _environment(call)
        except BadField as error:
            return error.outcome
        run = _Run(call, environment)
        try:
            async with asyncio.timeout(limit):
                return run.outcome(await run.scripts(scripts))
        except TimeoutError:
            return run.timed_out(limit)
        except OSError as error:
            return failed("transform", "SHELL_NOT_STARTED", f"the commands could not be started: {error}")

    async def close(self) -> None:
        """Nothing to let go of: no process outlives its call."""


class _Run:
    """The scripts of one call, and what they have printed so far."""

    def __init__(self, call: Call, environment: dict[str, str]) -> None:
        self._directory = call.directory
        self._environment = environment
        self._stdout = BoundedOutput(OUTPUT_LIMIT, "stdout")
        self._stderr = BoundedOutput(OUTPUT_LIMIT, "stderr")
        self._started = time.monotonic()

    async def scripts(self, scripts: list[str]) -> int:
        """Run them; the exit code of the first that fails, else 0."""
        for script in scripts:
            code = await self._script(script)
            if code:
                return code
        return 0

    def outcome(self, code: int) -> Outcome:
        """What the task is told."""
        result = self._result("error" if code else "success", code)
        if not code:
            return Outcome(result=result, logs=self._logs())
        said = self._stderr.text().strip().rpartition("\n")[2][:500]
        message = f"the command ended with exit code {code}" + (f": {said}" if said else "")
        return failed("transform", f"EXIT_{code}", message, result=result, logs=self._logs())

    def timed_out(self, limit: float) -> Outcome:
        """What the task is told when its time was up."""
        result = self._result("error", None)
        message = f"the commands ran longer than {limit:g} s and were ended"
        return failed("timeout", "TIMEOUT", message, result=result, logs=self._logs())

    async def _script(self, script: str) -> int:
        with _captured(self._stdout) as stdout, _captured(self._stderr) as stderr:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                script,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
            try:
                code = await process.wait()
            finally:
                kill_group(process.pid)
                await process.wait()
        return code if code >= 0 else 128 - code

    def _result(self, status: str, code: int | None) -> Json:
        return {
            "status": status,
            "stdout": self._stdout.text(),
            "stderr": self._stderr.text(),
            "returncode": code,
            "exit_code": code,
            "duration_ms": round((time.monotonic() - self._started) * 1000),
            "stdout_bytes": self._stdout.total,
            "stderr_bytes": self._stderr.total,
        }

    def _logs(self) -> str:
        return (self._stdout.text() + self._stderr.text())[:_LOG_LIMIT]


@contextmanager
def _captured(output: BoundedOutput) -> Iterator[int]:
    """Somewhere to print to. Not a pipe of asyncio's: with these, waiting for a process waits for its children too."""
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop.add_reader(reading, output.drain, reading)
    try:
        yield writing
    finally:
        output.drain(reading)
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)


def _scripts(call: Call) -> list[str]:
    value: Any = call.fields.get("cmds")
    if value is None:
        value = call.fields.get("command")
    scripts = [value] if isinstance(value, str) else value
    if not isinstance(scripts, list) or not scripts or not all(isinstance(script, str) for script in scripts):
        raise BadField("cmds must be a list of scripts, command a script")
    return scripts


def _limit(call: Call) -> float:
    limit = seconds(call.fields, "timeout_seconds", default=DEFAULT_TIMEOUT)
    return limit if call.timeout is None else min(limit, call.timeout)


def _environment(call: Call) -> dict[str, str]:
    given = call.fields.get("env") or {}
    if not isinstance(given, Mapping):
        raise BadField("env must be a mapping of names to values")
    own = {str(name): _text(value) for name, value in given.items()}
    return {"PATH": os.defpath, **minimal_environment(), **trace_variables(), **variables_of(call.auth), **own}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
