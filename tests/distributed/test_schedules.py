"""Two servers over one Postgres, and a schedule that is due every second: whichever of them dies or is paused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl.kernel.time import parse_time
from tests.e2e.cli import Home
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

OFTEN = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: often, path: tests/often}
workflow:
  - step: start
    tool: {kind: noop}
"""
LEASE = 3.0
PATIENCE = 120.0


class Servers:
    """Two servers with homes of their own, who know each other by their database alone.

    No worker runs what they start: here it is enough that it begins.
    """

    def __init__(self, place: Path, database: Database) -> None:
        self.database = database
        self.environment = {
            "NOETL_LEDGER__URL": database.dsn,
            "NOETL_LEDGER_KEY": "1a" * 32,
            "NOETL_WALLET__KEK": "2b" * 32,
            "NOETL_PAYLOADS__URL": f"file://{place}/payloads",
            "NOETL_SERVER__LEASE": f"{LEASE:g}s",
        }
        self.homes = [Home(place / name / "home") for name in ("first", "second")]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for home in self.homes:
            home.path.parent.mkdir()
        self.homes[0].json("db", "migrate", env=self.environment)
        for home in self.homes:
            self._start(home)

    def _start(self, home: Home) -> None:
        process = home.start("server", "start", "--port", "0", "--workers", "0", "--json", env=self.environment)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read().decode()
        said = json.loads(line)
        self.processes[said.get("url", "")] = process
        assert "url" in said, said

    def leader(self) -> str | None:
        """The server that says of itself that it leads."""
        for url in self.processes:
            with contextlib.suppress(httpx.HTTPError):
                said = httpx.get(f"{url}/api/metrics", timeout=2).text
                if 'noetl_leader{what="scheduler"} 1.0' in said:
                    return url
        return None

    def other(self, url: str) -> str:
        (found,) = [one for one in self.processes if one != url]
        return found

    def post(self, url: str, path: str, body: Any = None) -> Any:
        answer = httpx.post(f"{url}/api{path}", json=body or {}, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def kill(self, url: str) -> None:
        process = self.processes.pop(url)
        process.kill()
        process.communicate()

    def fired(self) -> list[dict[str, Any]]:
        """What the tenant's stream says of times that have come."""
        rows = self.database.query(
            "SELECT payload FROM noetl.event_log WHERE event_type = 'schedule.fired' ORDER BY position"
        )
        return [json.loads(str(row[0])) for row in rows]

    def executions(self) -> dict[str, str]:
        """The executions there are, by the key that has begun them."""
        rows = self.database.query(
            "SELECT idempotency_key, execution_id FROM noetl.event_log WHERE event_type = 'playbook.initialized'"
        )
        return {str(key): str(execution_id) for key, execution_id in rows}

    def settled(self) -> dict[str, Any] | None:
        """The record of the schedule, once nothing is left to be done for it."""
        record: dict[str, Any] = json.loads(str(self.database.query("SELECT record FROM noetl.schedule")[0][0]))
        return record if not record.keys() & {"decided", "owed"} else None

    def close(self) -> None:
        for process in self.processes.values():
            os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.communicate()


@pytest.fixture
def servers(tmp_path: Path, postgres: Database) -> Iterator[Servers]:
    started = Servers(tmp_path, postgres)
    try:
        started.start()
        yield started
    finally:
        started.close()


def eventually(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)
    return found


@pytest.mark.timeout(600)  # it waits for processes that start, die and wake; on a busy machine that takes its time
def test_paused_or_killed_leaders_lose_no_time_and_start_none_twice(servers: Servers) -> None:
    first = eventually(servers.leader)
    second = servers.other(first)
    servers.post(second, "/catalog/register", {"content": OFTEN})
    plan = {"name": "often", "playbook": "tests/often", "cron": "* * * * * *", "missed": "all"}
    servers.post(second, "/schedules", plan)
    eventually(lambda: len(servers.fired()) >= 3)

    os.kill(servers.processes[first].pid, signal.SIGSTOP)
    eventually(lambda: servers.leader() == second)
    before = len(servers.fired())
    eventually(lambda: len(servers.fired()) > before + 2)
    os.kill(servers.processes[first].pid, signal.SIGCONT)
    eventually(lambda: httpx.get(f"{first}/api/health", timeout=10).status_code == 200)
    assert servers.leader() == second, "who was paused has noticed"

    servers.kill(second)
    eventually(lambda: servers.leader() == first)
    after = len(servers.fired())
    eventually(lambda: len(servers.fired()) > after + 2)
    servers.post(first, "/schedules/often/pause")
    record = eventually(servers.settled)

    fired = servers.fired()
    seconds = [parse_time(said["fire_time"]) // 1_000_000 for said in fired]
    assert sorted(seconds) == list(range(min(seconds), max(seconds) + 1)), "every second, and each of them once"
    assert record["last"]["at"] // 1_000_000 == max(seconds)
    expected = {f"schedule/often/{said['fire_time']}": said["execution_id"] for said in fired}
    assert servers.executions() == expected
