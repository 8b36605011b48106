"""An inventory of names and objects that may be larger than memory: a database without a name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

__all__ = ["Candidate", "Inventory", "Total"]

_TABLES = """
CREATE TABLE reference (identity BLOB PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE execution (tenant TEXT, id INTEGER, ended INTEGER NOT NULL, PRIMARY KEY (tenant, id)) WITHOUT ROWID;
CREATE TABLE candidate (
    key TEXT PRIMARY KEY, kind TEXT, reason TEXT, size INTEGER, modified_at TEXT, identity BLOB
) WITHOUT ROWID;
CREATE INDEX candidate_identity ON candidate (identity);
"""


class Candidate(NamedTuple):
    """An object that seems to be dead, and why."""

    key: str
    kind: str
    reason: str
    size: int
    modified_at: str
    identity: bytes | None


class Total(NamedTuple):
    """How many candidates of one kind are dead for one reason."""

    kind: str
    reason: str
    objects: int
    bytes: int
    oldest: str


class Inventory:
    """References and until when they hold, executions, and candidates. Every method may block for a moment.

    SQLite keeps a database that is opened without a name in memory while it is small and in a temporary file beyond.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def refer(self, references: Mapping[bytes, int]) -> None:
        """Add references; of two to the same object the one counts that holds longer."""
        self._many(
            "INSERT INTO reference VALUES (?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
            references.items(),
        )

    def held_until(self, identity: bytes) -> int | None:
        """Until when an object is referred to; None if it is not."""
        return self._one("SELECT until FROM reference WHERE identity = ?", (identity,))

    def meet(self, executions: Mapping[tuple[str, int], bool]) -> None:
        """Add executions, and whether they have ended. One that has ended never begins again."""
        rows = [(tenant, number, ended) for (tenant, number), ended in executions.items()]
        self._many(
            "INSERT INTO execution VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET ended = max(ended, excluded.ended)", rows
        )

    def has_ended(self, tenant: str, execution: int) -> bool | None:
        """Whether an execution has ended; None if there is none."""
        found = self._one("SELECT ended FROM execution WHERE tenant = ? AND id = ?", (tenant, execution))
        return None if found is None else bool(found)

    def suspect(self, candidates: Iterable[Candidate]) -> None:
        """Add objects that seem to be dead."""
        self._many("INSERT OR REPLACE INTO candidate VALUES (?, ?, ?, ?, ?, ?)", candidates)

    def acquit(self, key: str) -> None:
        """Take an object off the list."""
        self._connection.execute("DELETE FROM candidate WHERE key = ?", (key,))

    def is_suspected(self, key: str) -> bool:
        """Whether an object is on the list."""
        return self._one("SELECT 1 FROM candidate WHERE key = ?", (key,)) is not None

    def suspects_of(self, identity: bytes) -> Sequence[Candidate]:
        """The objects on the list that a name means."""
        return self._rows("SELECT * FROM candidate WHERE identity = ?", (identity,))

    def suspects(self, *, after: str = "", limit: int = 1000) -> Sequence[Candidate]:
        """The list in order of key, some at a time."""
        return self._rows("SELECT * FROM candidate WHERE key > ? ORDER BY key LIMIT ?", (after, limit))

    def totals(self) -> Sequence[Total]:
        """The list, counted by kind and reason."""
        rows = self._connection.execute(
            "SELECT kind, reason, count(*), sum(size), min(modified_at) FROM candidate GROUP BY kind, reason "
            "ORDER BY kind, reason"
        )
        return [Total(*row) for row in rows]

    def examples(self, kind: str, reason: str, *, limit: int) -> Sequence[str]:
        """The first keys that are dead for one reason."""
        sql = "SELECT key FROM candidate WHERE kind = ? AND reason = ? ORDER BY key LIMIT ?"
        return [key for (key,) in self._connection.execute(sql, (kind, reason, limit))]

    def _many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany(sql, rows)
        self._connection.execute("COMMIT")

    def _one(self, sql: str, values: Sequence[object]) -> int | None:
        found: tuple[int] | None = self._connection.execute(sql, values).fetchone()
        return None if found is None else found[0]

    def _rows(self, sql: str, values: Sequence[object]) -> Sequence[Candidate]:
        return [Candidate(*row) for row in self._connection.execute(sql, values)]
