"""Projections beside the projections: a file of their own, compared with those in use, and put in their place.

What is put in place are rows, in one transaction of the ledger's file: whoever reads sees all rows of before or all of
after, and only what differs is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.failures import explain
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.errors import Conflict
from noetl.ports.clock import Clock
from noetl.ports.shadows import Decide, Drift, DriftedRow, Finish

__all__ = ["SqliteShadow", "open_shadow"]

_MOST_SHOWN = 100
_KEY = ("surface", "root_number", "root", "tenant_id", "row_id")
_COLUMNS = ", ".join((*_KEY, "version", "row"))
_USING = f"USING ({', '.join(_KEY)})"

# A root whose rows are not as far as the log is late, unless a projector says that they are: it is not compared.
_LATE = """
    CREATE TEMP TABLE late AS
    SELECT shadow.root_number, shadow.root, shadow.tenant_id
    FROM (
        SELECT root_number, root, tenant_id, max(version) AS reached
        FROM beside.projection GROUP BY root_number, root, tenant_id
    ) AS shadow
    LEFT JOIN (
        SELECT root_number, root, tenant_id, max(version) AS reached
        FROM main.projection GROUP BY root_number, root, tenant_id
    ) AS live USING (root_number, root, tenant_id)
    WHERE coalesce(live.reached, 0) < shadow.reached AND shadow.reached > ?
"""
# By the unique index of either side.
_WRONG = f"""
    CREATE TEMP TABLE wrong AS
    SELECT {", ".join(_KEY)}, what
    FROM (
        SELECT {", ".join(f"shadow.{name} AS {name}" for name in _KEY)},
            CASE WHEN live.row IS NULL THEN 'missing' ELSE 'different' END AS what
        FROM beside.projection AS shadow
        LEFT JOIN main.projection AS live {_USING}
        WHERE live.row IS NOT shadow.row
        UNION ALL
        SELECT {", ".join(f"live.{name} AS {name}" for name in _KEY)}, 'extra'
        FROM main.projection AS live
        LEFT JOIN beside.projection AS shadow {_USING}
        WHERE shadow.row IS NULL
    )
    WHERE (root_number, root, tenant_id) NOT IN (SELECT root_number, root, tenant_id FROM temp.late)
"""
_FIRST = (
    f"SELECT tenant_id, root, surface, row_id, what FROM wrong ORDER BY 1, root_number, 2, 3, 4 LIMIT {_MOST_SHOWN}"
)
_REMOVE = f"""
    DELETE FROM main.projection
    WHERE ({", ".join(_KEY)}) NOT IN (SELECT {", ".join(_KEY)} FROM beside.projection)
"""
_REPLACE = f"""
    INSERT INTO main.projection ({_COLUMNS})
    SELECT {_COLUMNS} FROM beside.projection WHERE true
    ON CONFLICT ({", ".join(_KEY)}) DO UPDATE SET version = excluded.version, row = excluded.row
    WHERE (version, row) IS NOT (excluded.version, excluded.row)
"""
_CHECKPOINTS = """
    INSERT INTO main.projection_checkpoint (projector, position, moved_at)
    SELECT projector, position, moved_at FROM beside.projection_checkpoint WHERE true
    ON CONFLICT (projector) DO UPDATE SET position = excluded.position, moved_at = excluded.moved_at
    WHERE excluded.position > position
"""


class SqliteShadow:
    """A file beside the ledger's, for one process at a time."""

    def __init__(self, ledger: Path, file: Path, clock: Clock, busy_timeout: float) -> None:
        self._ledger = ledger
        self._file = file
        self._busy = busy_timeout
        self._database = Database(file)
        self.projections = SqliteProjectionStore(self._database, clock)
        """Where whoever fills it saves rows."""

    async def compare(self, finish: Finish, decide: Decide) -> Drift:
        """Compare while nobody writes to the ledger's file; if `decide` says so put the rows in place."""
        connection = await asyncio.to_thread(self._connect)
        try:
            with self._explained():
                await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
                claimed = await finish()
                return await asyncio.to_thread(_compared, connection, claimed, decide)
        finally:
            await asyncio.to_thread(connection.close)  # which rolls back what is not committed

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _connect(self) -> sqlite3.Connection:
        with self._explained():
            connection = sqlite3.connect(
                self._ledger, timeout=self._busy, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("ATTACH DATABASE ? AS beside", (str(self._file),))
            return connection

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise explain(error, self._ledger) from error


def _compared(connection: sqlite3.Connection, claimed: int, decide: Decide) -> Drift:
    connection.execute(_LATE, (claimed,))
    connection.execute(_WRONG)
    (rows,) = connection.execute("SELECT count(*) FROM beside.projection").fetchone()
    (late,) = connection.execute("SELECT count(*) FROM late").fetchone()
    (wrong,) = connection.execute("SELECT count(*) FROM wrong").fetchone()
    first = [DriftedRow(*row) for row in connection.execute(_FIRST)]
    drift = Drift(rows=rows, late=late, wrong=wrong, first=first)
    if not decide(drift):
        return drift
    for statement in (_REMOVE, _REPLACE, _CHECKPOINTS):
        connection.execute(statement)
    connection.execute("COMMIT")
    return msgspec.structs.replace(drift, replaced=True)


@contextlib.asynccontextmanager
async def open_shadow(ledger: Path, clock: Clock, *, busy_timeout: float) -> AsyncIterator[SqliteShadow]:
    """An empty file beside the ledger's, gone at the end. Raises Conflict while another process has one.

    What a killed process has left is taken away by the next.
    """
    file = ledger.with_name("rebuild.db")
    lock = os.open(ledger.with_name("rebuild.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict("another process is rebuilding the rows of this ledger", hint="wait for it to end") from None
        _remove(file)
        shadow = SqliteShadow(ledger, file, clock, busy_timeout)
        try:
            yield shadow
        finally:
            shadow.close()
            _remove(file)
    finally:
        os.close(lock)


def _remove(file: Path) -> None:
    for left in file.parent.glob(f"{file.name}*"):
        left.unlink(missing_ok=True)
