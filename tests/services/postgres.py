"""A real Postgres for the tests: one server for a whole run, one database for each module that asks.

    def test_something(postgres: Database) -> None: ...

The workers of a parallel run share the server: the first one starts it, the last one stops it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.services.emulator import NOT_AVAILABLE
from tests.services.postgres_server import Database, Server, is_installed, start, stop

__all__ = ["Database", "Server", "postgres", "postgres_server"]

_SETTINGS = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60",
    "shared_buffers": "32MB", "deadlock_timeout": "50ms", "timezone": "UTC", "log_min_messages": "warning",
}  # fmt: skip
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server(worker_id: str) -> Iterator[Server]:
    """The server of this run. Where there are no binaries for this machine, the tests that need it are skipped."""
    if not is_installed():
        pytest.skip(f"{NOT_AVAILABLE}: postgres: there is no wheel with its binaries for this machine")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
    root = Path(tempfile.gettempdir()) / f"noetl-postgres-{run[:12]}"
    with _shared(root) as server:
        yield server


@pytest.fixture(scope="module")
def postgres(postgres_server: Server, worker_id: str) -> Iterator[Database]:
    """A database of the module's own."""
    name = f"{worker_id}_{next(_numbers)}"
    control = postgres_server.database("postgres")
    control.query(f"CREATE DATABASE {name} TEMPLATE template0")
    yield replace(control, name=name)
    control.query(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _shared(root: Path) -> Iterator[Server]:
    """Start the server or join it; whoever leaves last stops it."""
    note, lock = root / "server.json", root.with_suffix(".lock")
    with _locked(lock):
        state = json.loads(note.read_text()) if note.exists() else {"users": 0, "port": start(root, _SETTINGS)}
        note.write_text(json.dumps(state | {"users": state["users"] + 1}))
    try:
        yield Server(root, state["port"])
    finally:
        with _locked(lock):
            state = json.loads(note.read_text())
            note.write_text(json.dumps(state | {"users": state["users"] - 1}))
            if state["users"] == 1:
                stop(root)
                lock.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
