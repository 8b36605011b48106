"""Several processes on one file, and processes that die in the middle of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.ports.ledger import Ledger
from tests.contracts.proof import prove
from tests.unit.adapters.sqlite.appending_process import numbered_append
from tests.unit.adapters.sqlite.conftest import KEY, OpenLedger
from tests.unit.kernel.drafts import STREAM

KILLS = 24
MODULE = "tests.unit.adapters.sqlite.appending_process"


def start(*arguments: object) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert heard(process) == "ready"
    return process


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return line.strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def finish(*processes: subprocess.Popen[str]) -> list[str]:
    """Let all of them run at once and return what each has printed."""
    for process in processes:
        go(process)
    outcomes = [process.communicate() for process in processes]
    assert [error for _, error in outcomes] == [""] * len(processes)
    return [output.strip() for output, _ in outcomes]


def acknowledged_before_death(process: subprocess.Popen[str], after: int) -> list[int]:
    """Kill it once it has acknowledged `after` appends; whole lines are what it still managed to say."""
    with process:
        go(process)
        numbers = [int(heard(process)) for _ in range(after)]
        process.kill()
        assert process.stdout is not None
        rest = process.stdout.readlines()
    return numbers + [int(line) for line in rest if line.endswith("\n")]


@contextlib.asynccontextmanager
async def reopened(path: Path, clock: VirtualClock) -> AsyncIterator[Ledger]:
    """Nobody else has the file open, so SQLite recovers whatever the dead process has left."""
    database = Database(path)
    ledger = await SqliteLedger(database, clock, mac_key=KEY).open()
    yield ledger
    await ledger.close()
    database.close()


async def events_per_append(ledger: Ledger) -> Counter[int]:
    events = await ledger.read_all(limit=1_000_000)
    return Counter(int(str(item.event.idempotency_key).split("-")[0]) for item in events)


def size_of(number: int) -> int:
    return sum(len(batch.drafts) for batch in numbered_append(number))


async def test_of_two_processes_at_one_version_one_wins(open_ledger: OpenLedger, path: Path) -> None:
    count = 60
    ledger = await open_ledger()
    answers = finish(start("race", path, "a", count), start("race", path, "b", count))
    assert [int(answer.split()[0]) for answer in answers] == [count, count]
    events = [item.event for item in await ledger.read(STREAM)]
    assert [event.stream_version for event in events] == list(range(1, 2 * count + 1))
    assert Counter(event.node_name for event in events) == {"a": count, "b": count}
    assert await prove(ledger) == 2 * count


async def test_processes_on_streams_of_their_own_all_succeed(open_ledger: OpenLedger, path: Path) -> None:
    answers = finish(*(start("own", path, number, 30) for number in range(1, 5)))
    assert answers == ["done"] * 4
    ledger = await open_ledger()
    events = [item.event for item in await ledger.read_all(limit=1000)]
    assert len({event.event_id for event in events}) == len(events)
    assert await prove(ledger) == 4 * 30 * 2


async def test_a_process_killed_while_appending_leaves_all_or_nothing(path: Path, clock: VirtualClock) -> None:
    following, interrupted = 0, 0
    for kill in range(KILLS):
        numbers = acknowledged_before_death(start("endless", path, following), after=1 + kill % 4)
        assert numbers == list(range(following, following + len(numbers)))
        following += len(numbers)
        async with reopened(path, clock) as ledger:
            found = await events_per_append(ledger)
            assert all(found[number] == size_of(number) for number in range(following))
            assert found[following] in (0, size_of(following))
            interrupted += found[following] == 0

            await ledger.append(numbered_append(following))
            after = await events_per_append(ledger)
            assert after == found | {following: size_of(following)}
            following += 1
            if kill % 6 == 5:
                assert await prove(ledger) == after.total()
    assert interrupted
