"""A process that stops for ever at one point of a rotation, for a test that kills it there.

    python rotating_process.py HOME POINT

It prints `there` when it has come to the point.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from noetl.adapters.sqlite import credentials as module
from noetl.adapters.sqlite.credentials import SqliteCredentials
from noetl.adapters.sqlite.database import Database
from noetl.runtime.clock import SystemClock
from noetl.tools.secrets import wallet
from noetl.tools.secrets.keys import Keyholder
from noetl.tools.secrets.records import rewrap_record
from noetl.tools.secrets.wallet import KeyFile

POINTS = (
    "key drafted",
    "key in place",
    "some records rewrapped",
    "all records rewrapped",
    "committed",
    "shorter file drafted",
    "shorter file in place",
)


def stop(*_: object, **__: object) -> NoReturn:
    sys.stdout.write("there\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(1)


def at_call(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, until it is called for this time."""
    calls = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return stop() if calls == number else function(*args, **kwargs)

    return counted


def arrange(point: str, records: int) -> None:
    if point == "key drafted":
        Path.replace = at_call(1, Path.replace)  # type: ignore[method-assign]
    elif point == "key in place":
        wallet._sync_directory = at_call(1, wallet._sync_directory)
    elif point == "some records rewrapped":
        setattr(module, "rewrap_record", at_call(records // 2, rewrap_record))  # noqa: B010
    elif point == "all records rewrapped":
        setattr(module, "Rotation", stop)  # noqa: B010
    elif point == "committed":
        Keyholder.retire = stop  # type: ignore[method-assign]
    elif point == "shorter file drafted":
        Path.replace = at_call(2, Path.replace)  # type: ignore[method-assign]
    elif point == "shorter file in place":
        wallet._sync_directory = at_call(2, wallet._sync_directory)


async def main(home: Path, point: str) -> None:
    store = SqliteCredentials(Database(home / "ledger.db"), SystemClock(), KeyFile(home / "wallet" / "kek.key"))
    arrange(point, len((await store.list("acme", limit=1000)).credentials))
    await store.rotate(retire=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
