"""A sync whose process is killed again and again: no gap, and no position twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.data.lake import Lake
from noetl.data.lake.checking import verify
from tests.spark.test_lake import House

_SYNC = """
import asyncio, sys
from pathlib import Path

from noetl.data.lake import Lake
from noetl.data.lake.syncing import Sizes, sync
from noetl.data.session import SessionConf, SparkSessions
from noetl.data.source import place_here, register
from noetl.data.source.log import LogSpec, url_of_home

home, lake = Path(sys.argv[1]), Lake(sys.argv[2])
sessions = SparkSessions(home)
session = asyncio.run(sessions.get(SessionConf(master="local[2]")))
register(session, place=place_here({}, home.parent, home), push_filters=False)
print("copying", flush=True)
sync(session, lake, LogSpec(url_of_home(home)), sizes=Sizes(rows_per_task=10, tasks_per_commit=2))
sessions.close()
"""


@pytest.mark.timeout(600)  # a JVM and four processes, on a machine that may be busy
def test_killed_at_any_moment_twice(tmp_path: Path) -> None:
    house, lake = House(tmp_path / "home"), Lake(tmp_path / "lake")
    for execution in range(1, 11):
        house.append(40, execution)
    chance = random.Random(7)
    with _warm(tmp_path) as run:
        for _ in range(2):
            before = lake.head()
            begun = run()
            assert begun.stdout is not None
            assert begun.stdout.readline() == b"copying\n"
            _until(lambda before=before: Lake(lake.path).head() > before)  # type: ignore[misc]  # of this round
            time.sleep(chance.random() * 0.5)  # where in the work of a batch it is killed is left to chance
            begun.kill()
            begun.wait()
            assert verify(lake, house.spec).problems == []
        assert 0 < lake.head() < 400
        assert run().wait(200) == 0
    found = verify(lake, house.spec)
    assert (found.problems, found.rows, found.head) == ([], 400, 400)


class _warm:  # noqa: N801 - reads as what it is: a block in which there is a warm session
    """Spark stays up between the processes, so that they need not start it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Callable[[], subprocess.Popen[bytes]]:
        self._noetl("start")
        return self._start

    def __exit__(self, *_: object) -> None:
        for started in self._started:
            started.kill()
            started.communicate()
        self._noetl("stop", "--now")

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _SYNC, str(self._place / "home"), str(self._place / "lake")]
        self._started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return self._started[-1]

    def _noetl(self, what: str, *more: str) -> None:
        home = ["--home", str(self._place / "home"), "--json"]
        master = ["--master", "local[2]"] if what == "start" else []
        command = [sys.executable, "-m", "noetl", "spark", what, *master, *more, *home]
        patient = {**os.environ, "NOETL_SPARK__START": "300s", "NOETL_SPARK__UI": "false"}
        done = subprocess.run(command, env=patient, capture_output=True, check=True)
        assert json.loads(done.stdout)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, "nothing was committed"
        time.sleep(0.05)
