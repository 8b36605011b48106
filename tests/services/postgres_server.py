"""A Postgres server for the tests, from the binaries that `noetl up` runs, without the care that data needs."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from noetl.deploy.local.ports import free_ports
from noetl.deploy.local.postgres import Programs, account, find_programs
from noetl.errors import Unavailable

__all__ = ["Database", "Server", "answers", "is_installed", "kill", "revive", "start", "stop"]

USER, PASSWORD = "noetl", "of-the-tests"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Database:
    """Where one database is, and as whom to enter."""

    host: str
    port: int
    name: str
    user: str = USER
    password: str = PASSWORD

    @property
    def credential(self) -> dict[str, object]:
        """As a credential of type postgres holds it."""
        return {
            "db_host": self.host, "db_port": self.port, "db_user": self.user,
            "db_password": self.password, "db_name": self.name,
        }  # fmt: skip

    @property
    def dsn(self) -> str:
        """As libpq takes it."""
        return f"host={self.host} port={self.port} dbname={self.name} user={self.user} password={self.password}"

    def query(self, text: str) -> list[tuple[object, ...]]:
        """Run something beside what is tested, and commit."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []


@dataclass(frozen=True)
class Server:
    """A running server."""

    root: Path
    port: int

    def database(self, name: str) -> Database:
        return Database("127.0.0.1", self.port, name)


def is_installed() -> bool:
    """Whether there are binaries to start."""
    try:
        find_programs()
    except Unavailable:
        return False
    return True


def start(root: Path, settings: Mapping[str, str]) -> int:
    """Make a server in this folder, which must not exist yet, and give its port."""
    try:
        return _start(root, settings)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise


def _start(root: Path, settings: Mapping[str, str]) -> int:
    root.mkdir(mode=0o755)
    if user := account():
        os.chown(root, user["user"], user["group"])
    secret = root / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    port = free_ports(1)[0]
    _programs(root).run(
        "initdb", "-D", root / "data", "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}",
        "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions", cwd=root,
    )  # fmt: skip
    _launch(root, port, settings)
    _wait(lambda: answers(port), f"Postgres did not start: {_tail(root / 'log')}")
    return port


def _launch(root: Path, port: int, settings: Mapping[str, str]) -> None:
    """Start the server and return at once."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    # pg_ctl keeps its pipe open for the server it starts, so the server writes to a file of its own.
    where = f"-h 127.0.0.1 -p {port} -k {root} {options}"
    _programs(root).run("pg_ctl", "start", "-D", root / "data", "-l", root / "log", "-o", where, "-W", cwd=root)


def _programs(root: Path) -> Programs:
    return find_programs().copied_to(root / "binaries")


def kill(root: Path) -> None:
    """End the server as a power cut would: it is not asked, and writes nothing more."""
    os.kill(int((root / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)


def revive(root: Path, port: int, settings: Mapping[str, str]) -> None:
    """Start a server again that was killed, and wait until it answers.

    What is left of the first may hold its memory for a moment, so one that gives up is started again.
    """

    def is_up() -> bool:
        if not answers(port):
            _launch(root, port, settings)
        return answers(port)

    _wait(is_up, f"Postgres did not come back: {_tail(root / 'log')}", pause=0.2)


def stop(root: Path) -> None:
    """Stop the server and remove its folder."""
    process = int((root / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(process, signal.SIGQUIT)
    _wait(lambda: not (root / "data" / "postmaster.pid").exists(), "Postgres did not stop")
    shutil.rmtree(root)


def answers(port: int) -> bool:
    """Whether it lets us in."""
    try:
        with psycopg.connect(Database("127.0.0.1", port, "postgres").dsn, connect_timeout=5):
            return True
    except psycopg.OperationalError:
        return False


def _wait(condition: Callable[[], bool], otherwise: str, pause: float = 0.02) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(pause)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""
