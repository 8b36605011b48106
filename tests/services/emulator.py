"""A server of somebody else's for the tests: one process for a whole run, on ports of its own.

The workers of a parallel run share it: the first one starts it, the last one stops it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

__all__ = ["NOT_AVAILABLE", "free_ports", "installed", "is_listening", "running", "shared", "wait_for"]

NOT_AVAILABLE = "service not available"
START_SECONDS = 60.0
Command = Callable[[Path, Sequence[int]], Sequence[str]]


def installed(name: str) -> Path:
    """Where the project's own script has put an emulator. Without it, the tests that need it are skipped."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "emulators.py"
    done = subprocess.run([sys.executable, script, name], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(f"{NOT_AVAILABLE}: {name}: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@contextmanager
def shared(name: str, command: Command, ports: int = 1) -> Iterator[int]:
    """The first port of the run's server; `command` says how to start it in a directory on so many ports."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
    root = Path(tempfile.gettempdir()) / f"noetl-{name}-{run[:12]}"
    note, lock = root / "server.json", root.with_suffix(".lock")
    with _locked(lock):
        state = json.loads(note.read_text()) if note.exists() else {"users": 0} | _start(root, command, ports)
        note.write_text(json.dumps(state | {"users": state["users"] + 1}))
    try:
        yield state["port"]
    finally:
        with _locked(lock):
            state = json.loads(note.read_text())
            note.write_text(json.dumps(state | {"users": state["users"] - 1}))
            if state["users"] == 1:
                os.killpg(state["pid"], signal.SIGKILL)
                wait_for(lambda: not is_listening(state["port"]), f"{name} did not stop")
                shutil.rmtree(root, ignore_errors=True)
                lock.unlink()


@contextmanager
def running(root: Path, command: Command, ports: int = 1) -> Iterator[tuple[int, Callable[[], None]]]:
    """A server of the test's own: its first port, and how to kill it."""
    state = _start(root, command, ports)

    def kill() -> None:
        os.killpg(state["pid"], signal.SIGKILL)
        wait_for(lambda: not is_listening(state["port"]), "the server did not stop")

    try:
        yield state["port"], kill
    finally:
        if is_listening(state["port"]):
            kill()


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses, all different."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def _start(root: Path, command: Command, count: int) -> dict[str, int]:
    root.mkdir(parents=True, exist_ok=True)
    ports = free_ports(count)
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            command(root, ports), cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(lambda: is_listening(ports[0]) or process.poll() is not None, "it does not listen")
        assert process.poll() is None, f"it ended with {process.returncode}"
    except AssertionError as error:
        said = (root / "log").read_text(errors="replace")[-2000:]
        process.kill()
        process.wait()
        shutil.rmtree(root)
        raise AssertionError(f"{error}: {said}") from None
    process.returncode = 0  # left running on purpose: whoever stops it does so by its id
    return {"pid": process.pid, "port": ports[0]}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
