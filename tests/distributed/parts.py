"""The parts of an installation as processes; each can be killed, and comes back as a supervisor would have it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from tests.e2e.cli import Home
from tests.services.emulator import NOT_AVAILABLE, free_ports
from tests.services.nats import NatsServer
from tests.services.postgres_server import Database, Server, is_installed, kill, revive, start, stop

__all__ = ["Installation", "Part", "Program", "installation"]

# Processes are killed here, not machines: what was written is in the memory of the system, and need not be on the disk.
SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "timezone": "UTC", "max_connections": "80",
    "log_min_messages": "warning",
}  # fmt: skip
SPARK = {
    "NOETL_SPARK__MASTER": "local[2]",
    "NOETL_SPARK__CONF": "spark.driver.memory=512m,spark.sql.shuffle.partitions=2,"
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""A JVM that lives for a minute: compiling for hours of work, and collecting on all cores, cost it more."""
_UP_SECONDS = 90.0
_LOOK_SECONDS = 0.1


class Part(Protocol):
    """Something that can be killed and started again."""

    def kill(self) -> None:
        """End it as if its machine had lost power: it is not asked."""
        ...

    def start(self) -> object:
        """Return when it is at work."""
        ...

    def stop(self) -> None:
        """Leave nothing of it behind."""
        ...


class Program:
    """A `noetl` command that runs until it is ended; one that finds something away at its start is started again."""

    def __init__(self, name: str, home: Home, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.home = home
        self.log = home.path.parent / f"{name}.log"
        self.said: dict[str, Any] = {}
        self.starts = 0
        self._arguments = arguments
        self._env = dict(env or {})
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it says that it is at work."""
        deadline = time.monotonic() + _UP_SECONDS
        while not self._tried(deadline):
            assert time.monotonic() < deadline, f"{self.name} does not start: {self.log.read_text()[-2000:]}"
            time.sleep(_LOOK_SECONDS)

    def _tried(self, deadline: float) -> bool:
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = self.home.start(*self._arguments, "--json", env=self._env, stderr=log)
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.stop()
            return False
        self.said = json.loads(line)
        return True

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def pause(self) -> None:
        """It stops in the middle of whatever it does."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """It goes on, and has not noticed anything."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.wake()
                self.process.kill()
            self.process.communicate()
            self.process = None

    def stop(self) -> None:
        self.kill()


class Nats(NatsServer):
    """NATS as a part."""

    def stop(self) -> None:
        self.kill()


class Postgres:
    """Postgres as a part, with one database of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.port = start(root, SETTINGS)
        Server(root, self.port).database("postgres").query("CREATE DATABASE noetl TEMPLATE template0")

    @property
    def database(self) -> Database:
        return Server(self._root, self.port).database("noetl")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What somebody with an SQL prompt sees."""
        with psycopg.connect(self.database.dsn, options="-c search_path=noetl") as connection:
            return connection.execute(sql.encode()).fetchall()

    def kill(self) -> None:
        kill(self._root)

    def start(self) -> None:
        revive(self._root, self.port, SETTINGS)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            stop(self._root)
        shutil.rmtree(self._root, ignore_errors=True)


class SparkDriver:
    """The Java process with the Spark session, of whichever program hosts it. It is started by who needs it."""

    def __init__(self, hosts: Callable[[], Sequence[Program]]) -> None:
        self._hosts = hosts

    @property
    def pids(self) -> list[int]:
        """Those that run now."""
        hosts = {host.process.pid for host in self._hosts() if host.process is not None}
        return [pid for pid in _processes() if _parent(pid) in hosts and b"pyspark-shell" in _command(pid)]

    def kill(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start(self) -> None:
        """Nobody has to: the next stage does."""

    def stop(self) -> None:
        self.kill()


@dataclass
class Installation:
    """Everything that runs, by name. `kinds` says which parts are of one kind."""

    place: Path
    home: Home
    postgres: Postgres
    nats: Nats
    spark: SparkDriver
    server: Program
    url: str
    environment: Mapping[str, str]
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, list[Part]]:
        """What can be killed."""
        found: dict[str, list[Part]] = {"postgres": [self.postgres], "nats": [self.nats], "spark": [self.spark]}
        for name, program in self.programs.items():
            found.setdefault(name.rstrip("0123456789"), []).append(program)
        return found

    def add(
        self, name: str, *arguments: str, home: Home | None = None, env: Mapping[str, str] | None = None
    ) -> Program:
        """One more program that is at work."""
        program = Program(name, home or self.home, *arguments, env={**self.environment, **(env or {})})
        self.programs[name] = program
        program.start()
        return program

    def add_worker(
        self, name: str, *options: str, home: Home | None = None, env: Mapping[str, str] | None = None
    ) -> Program:
        """A worker without a database. In a home of its own it has no barrier, in the server's it has."""
        place = home or Home(self.place / name)
        program = Program(name, place, "worker", "--server", self.url, "--nats", self.nats.url, *options, env=env)
        self.programs[name] = program
        program.start()
        return program

    def close(self) -> None:
        for program in reversed(self.programs.values()):
            program.stop()
        self.nats.stop()
        self.postgres.stop()


@contextlib.contextmanager
def installation(place: Path, *, lease: str = "5s", **settings: str) -> Iterator[Installation]:
    """A Postgres, a NATS, a server that runs nothing but data stages, and a publisher; workers and others are added."""
    if not is_installed():
        pytest.skip(f"{NOT_AVAILABLE}: postgres: there is no wheel with its binaries for this machine")
    place.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.gettempdir()) / f"noetl-parts-{os.getpid()}-{free_ports(1)[0]}"
    postgres, nats = Postgres(root), Nats(place / "nats")
    home, port = Home(place / "home"), free_ports(1)[0]
    environment = {
        "NOETL_LEDGER__URL": postgres.database.dsn, "NOETL_NATS__URL": nats.url, "NOETL_SERVER__LEASE": lease,
        **SPARK, **settings,
    }  # fmt: skip
    server = Program("server", home, "server", "start", "--port", str(port), "--workers", "0", env=environment)
    found = Installation(
        place, home, postgres, nats, SparkDriver(lambda: list(found.programs.values())), server,
        f"http://127.0.0.1:{port}", environment, {"server": server},
    )  # fmt: skip
    try:
        nats.start()
        home.json("db", "migrate", env=environment)
        server.start()
        found.add("publisher", "outbox", "--commands", "--metrics-port", "0")
        yield found
    finally:
        found.close()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
