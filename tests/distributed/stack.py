"""A whole installation as processes: a server that runs nothing itself, a publisher, and workers without a database."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.cli import Home
from tests.e2e.serving import Server

__all__ = ["Stack", "stack"]


@dataclass
class Stack:
    """What runs, and who may be killed."""

    home: Home
    nats: str
    environment: Mapping[str, str]
    server: Server
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: dict[int, int | None] = field(default_factory=dict)

    def worker(self, name: str, *options: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A worker that is at work; its home is its own, and it knows of no database."""
        home = Home(self.home.path.parent / name)
        own = {"NOETL_SERVER_URL": self.server.url, **(env or {})}
        process = _begun(home, "worker", "--nats", self.nats, "--json", *options, env=own)
        self.processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, said_by(home)
        said = json.loads(line)
        assert said["working"] is True
        self.ports[process.pid] = said["metrics_port"]
        return process

    def kill_workers(self) -> None:
        """Those that are left."""
        for one in self.processes:
            if one.pid in self.ports and one.poll() is None:
                os.kill(one.pid, signal.SIGCONT)
                one.kill()
                one.wait()

    def summary(self, worker: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What a worker with --metrics-port says of itself."""
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{self.ports[worker.pid]}/summary").json()
        return found

    def replica(self, name: str, *options: str, env: Mapping[str, str] | None = None) -> Server:
        """One more server, with a home of its own; whoever asks for it closes its client."""
        process, url = _started(Home(self.home.path.parent / name), {**self.environment, **(env or {})}, "0", *options)
        self.processes.append(process)
        return Server(process, url, httpx.Client(base_url=url, timeout=60))

    def kill_server(self) -> None:
        """It leaves what it was doing; another one takes its place, at the same address."""
        self.server.process.kill()
        self.server.process.wait()
        process, _ = _started(self.home, self.environment, self.server.url.rpartition(":")[2])
        self.processes.append(process)
        self.server.process = process

    def run(self, path: str, **payload: Any) -> tuple[str, dict[str, Any]]:
        """Run a playbook to its end: its id, and what has become of it."""
        execution_id = self.server.start(path, **payload)
        self.server.ended(execution_id)
        return execution_id, self.server.get(f"/executions/{execution_id}")

    def events(self, execution_id: str, event_type: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.get(
            f"/executions/{execution_id}/events", event_type=event_type, page_size=500
        )["events"]
        return found

    def verified(self, execution_id: str) -> bool:
        """Whether the log holds, and what is live is what it says."""
        said = self.home.json("verify", execution_id, env=self.environment)
        return bool(said["chain"] == "ok" and said["parity"])


def said_by(home: Home) -> str:
    """What the processes of a home have complained about."""
    return (home.path.parent / f"{home.path.name}.stderr").read_text()


def _begun(home: Home, *args: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process whose complaints go to a file: a pipe that nobody reads is full after some hundred executions."""
    with (home.path.parent / f"{home.path.name}.stderr").open("ab") as complaints:
        return home.start(*args, env=env, stderr=complaints)


def _started(
    home: Home, environment: Mapping[str, str], port: str, *options: str
) -> tuple[subprocess.Popen[bytes], str]:
    process = _begun(home, "server", "start", "--port", port, "--workers", "0", "--json", *options, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, said_by(home)
    return process, json.loads(line)["url"]


@contextlib.contextmanager
def stack(
    place: Path,
    dsn: str,
    nats: str,
    *options: str,
    lease: str = "3s",
    env: Mapping[str, str] | None = None,
    beside: Sequence[str] = (),
    **more: str,
) -> Iterator[Stack]:
    """A server and a publisher over a database that is migrated here; workers are added by the test.

    `env` and `more` are further variables of the environment of all of it, and `beside` are other commands that run all
    the time.
    """
    home = Home(place / "home")
    own = {"NOETL_LEDGER__URL": dsn, "NOETL_NATS__URL": nats, "NOETL_SERVER__LEASE": lease}
    environment = {**own, **(env or {}), **more}
    home.json("db", "migrate", env=environment)
    process, url = _started(home, environment, "0", *options)
    started = [process]
    try:
        started += [_begun(home, command, env=environment) for command in beside]
        started.append(_begun(home, "outbox", "--commands", env=environment))
        with httpx.Client(base_url=url, timeout=60) as client:
            yield Stack(home, nats, environment, Server(process, url, client), processes=started)
    finally:
        for one in reversed(started):
            if one.poll() is None:
                os.kill(one.pid, signal.SIGCONT)
                one.kill()
            one.communicate()
