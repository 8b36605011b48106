"""A process that appends, for tests that run several of them or kill one.

    python -m tests.unit.adapters.sqlite.appending_process race LEDGER NAME COUNT
    python -m tests.unit.adapters.sqlite.appending_process own LEDGER NUMBER COUNT
    python -m tests.unit.adapters.sqlite.appending_process endless LEDGER FIRST

Each begins when it reads a line from stdin. `race` appends to the shared stream at the version it saw and
prints how many tries won and how many met a conflict; `own` appends to a stream of its own; `endless`
appends until it is killed and prints the number of every append that was acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.errors import VersionConflict
from noetl.ports.ledger import Batch, Ledger, Stream
from noetl.runtime.clock import SystemClock
from tests.unit.adapters.sqlite.conftest import KEY
from tests.unit.kernel.drafts import STAGE, STREAM, batch, draft

SIZES = (1, 3, 200, 40, 2, 400, 8)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def numbered_append(number: int) -> list[Batch]:
    """What the append of that number says: the same every time, over two streams."""
    size = SIZES[number % len(SIZES)]
    drafts = [draft(idempotency_key=f"{number}-{n}", payload={"n": n, "text": "x" * 300}) for n in range(size)]
    return [batch(*drafts), batch(draft("frame.committed", idempotency_key=f"{number}-frame"), stream=STAGE)]


async def race(ledger: Ledger, name: str, count: int) -> None:
    won = conflicts = 0
    while won < count:
        head = await ledger.head(STREAM)
        try:
            await ledger.append([batch(draft(node_name=name), expected_version=head.version if head else 0)])
            won += 1
        except VersionConflict:
            conflicts += 1
    say(f"{won} {conflicts}")


async def own(ledger: Ledger, number: int, count: int) -> None:
    stream = Stream("acme", f"execution/{number}")
    for version in range(count):
        drafts = [draft(execution_id=number, payload={"n": n}) for n in range(2)]
        await ledger.append([batch(*drafts, stream=stream, expected_version=version * 2)])
    say("done")


async def endless(ledger: Ledger, first: int) -> None:
    for number in itertools.count(first):
        await ledger.append(numbered_append(number))
        say(str(number))


async def main(mode: str, path: str, *arguments: str) -> None:
    say("ready")
    sys.stdin.readline()
    node = int(arguments[0]) % 1024 if arguments[0].isdecimal() else ord(arguments[0][0])
    database = Database(Path(path))
    ledger = await SqliteLedger(database, SystemClock(), node=node, mac_key=KEY).open()
    match mode:
        case "race":
            await race(ledger, arguments[0], int(arguments[1]))
        case "own":
            await own(ledger, int(arguments[0]), int(arguments[1]))
        case _:
            await endless(ledger, int(arguments[0]))
    await ledger.close()
    database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
