"""The playbook as a contestant: one embedded installation that stays up, as a server does, and runs it each turn."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.pft.drain import Drained
from benchmarks.pft.totals import MOST_PAGES, Size
from noetl.data.session import SparkSessions
from noetl.ports.credentials import Credential
from noetl.runtime.driver import Origin, Request
from noetl.runtime.embedded.runner import Runner, open_runner
from noetl.runtime.home import Home
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings
from tests.services.postgres_server import Database

__all__ = ["Ours", "installation"]

T = TypeVar("T")

_DOCUMENT = Path(__file__).parent / "pft.yaml"
_CREDENTIAL = "pft"
_SLOTS = 16
# Of each time that a frame was given up, the rows that it had.
_LOST = """
    SELECT sum(json_extract(begun.payload, '$.row_count'))
    FROM event AS gone JOIN event AS begun
      ON begun.execution_id = ? AND begun.event_type = 'frame.dispatched' AND begun.frame_id = gone.frame_id
      AND begun.attempt = gone.attempt
    WHERE gone.execution_id = ? AND gone.event_type = 'frame.abandoned'
"""


class Ours:
    """An installation in a thread of its own."""

    def __init__(self, place: Path, api: str, database: Database, reclaim_seconds: float) -> None:
        self._place = place
        self._home = Home(place / "home")
        self._workload = {"api": api, "pg": _CREDENTIAL, "reclaim_seconds": reclaim_seconds}
        self._database = database
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._opened = AsyncExitStack()
        self._recorded: dict[str, int] = {}

    def start(self) -> None:
        """Open it, with the credential that the playbook names."""
        self._thread.start()
        self._runner = self._await(self._open())

    def stop(self) -> None:
        """Close it."""
        self._await(self._opened.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, run: str, size: Size) -> Drained:
        """Run the playbook, and read from its log what was done."""
        workload = {**self._workload, "facilities": size.facilities, "patients": size.patients}
        self._recorded[run] = self._await(self._run(workload))
        return self._drained(self._recorded[run])

    def pids(self) -> list[int]:
        """The Python workers of Spark that carry slots, for those who want to kill one."""
        info = SparkSessions.shared(self._home.path).info()
        if info is None or info.jvm_pid is None:
            return []
        return [worker for daemon in _children(info.jvm_pid) for worker in _children(daemon)]

    def lost(self, run: str) -> int:
        """The requests that may have been answered twice: those of all rows of the frames that were run again."""
        execution_id = self._recorded[run]
        with sqlite3.connect(self._home.ledger) as log:
            (rows,) = log.execute(_LOST, (execution_id, execution_id)).fetchone()
        return int(rows or 0) * MOST_PAGES

    def recorded_as(self, run: str) -> str:
        """The name of a run in the tables: the playbook's queue belongs to its execution."""
        return str(self._recorded[run])

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> Runner:
        embedded: Embedded = await self._opened.enter_async_context(open_embedded(self._home, Settings(), create=True))
        credential = Credential(name=_CREDENTIAL, type="postgres", data=dict(self._database.credential))
        await embedded.credentials.put("default", credential)
        running = open_runner(embedded, Origin(), directory=self._place, scratch=self._place / "scratch", slots=_SLOTS)
        return await self._opened.enter_async_context(running)

    async def _run(self, workload: dict[str, Any]) -> int:
        execution_id = await self._runner.start(
            Request(document=_DOCUMENT.read_text(), file=str(_DOCUMENT), workload=workload)
        )
        finished = await self._runner.wait(execution_id)
        if finished.status != "COMPLETED":
            raise SystemExit(f"the playbook ended {finished.status}: {finished.error}")
        return execution_id

    def _drained(self, execution_id: int) -> Drained:
        with sqlite3.connect(self._home.ledger) as log:
            said = log.execute(
                "SELECT payload FROM event WHERE execution_id = ? AND event_type = 'frame.committed'", (execution_id,)
            ).fetchall()
        frames = [msgspec.json.decode(payload) for (payload,) in said]
        spent = [frame.get("timings_ms", {}) for frame in frames]
        http = sum(one.get("fetch", 0.0) for one in spent) / 1000
        sql = sum(one.get("save", 0.0) for one in spent) / 1000
        return Drained(
            rows=sum(frame["rows"] for frame in frames),
            frames=len(frames),
            http_seconds=http,
            sql_seconds=sql,
            row_seconds=sum(sum(one.values()) for one in spent) / 1000,
        )


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


@contextmanager
def installation(api: str, database: Database, reclaim_seconds: float) -> Iterator[Ours]:
    """An installation that is gone at the end, as if it had never been."""
    with tempfile.TemporaryDirectory(prefix="noetl-pft-") as folder:
        ours = Ours(Path(folder), api, database, reclaim_seconds)
        ours.start()
        try:
            yield ours
        finally:
            ours.stop()
