"""The events of a ledger as plain rows, by ranges of positions, for readers that take many of them.

Nothing is decoded: a reader of columns wants text and numbers, not envelopes. Rows come in pages, each from a
transaction of its own, because a reader that holds one open keeps the writer from clearing its write-ahead log. Events
never change, so pages that were read one after the other fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noetl.adapters.sqlite.readonly import connect, explained
from noetl.adapters.sqlite.rows import COLUMNS, fetch_ledger_head
from noetl.errors import Archived, Corruption, InvalidInput, NotFound
from noetl.kernel.tail import Stream
from noetl.ports.forgetting import checksums_from, concerns

__all__ = ["OPERATORS", "SqliteEventLog", "Term"]

OPERATORS = ("=", "<", "<=", ">", ">=", "in", "is null", "is not null")
_KNOWN = frozenset(COLUMNS.split(", "))
_TEXTS = ("payload", "payload_ref", "meta")
_PAGE_ROWS = 4096
_PAGE_BYTES = 16 << 20
_PAGE_CHECKSUMS = 65_536
_MOST_IN = 500  # SQLite takes some hundreds of parameters everywhere


class Term(NamedTuple):
    """A condition on one column; all terms of a query hold together."""

    column: str
    operator: str
    value: Any = None


class SqliteEventLog:
    """One ledger file, opened to be read by the process that wants it."""

    def __init__(self, path: Path, *, busy_timeout: float = 10.0) -> None:
        self._path = path
        self._connection = connect(path, busy_timeout=busy_timeout)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def head(self) -> int:
        """The position of the last committed event, 0 when there is none."""
        with explained(self._path):
            return fetch_ledger_head(self._connection)[0].position

    def checksum(self, position: int) -> str | None:
        """The checksum of the event at a position, by which a ledger is recognised; None if there is none."""
        found = self._all("SELECT envelope_checksum FROM event WHERE position = ?", (position,))
        return str(found[0][0]) if found else None

    def checksums(self, after: int, to: int) -> Iterator[list[tuple[int, str]]]:
        """Positions in (after, to] and the checksums of their events, those that have gone to an archive included."""
        last = after
        while page := self._all(
            "SELECT position, envelope_checksum FROM event WHERE position > ? AND position <= ? "
            "ORDER BY position LIMIT ?",
            (last, to, _PAGE_CHECKSUMS),
        ):
            last = page[-1][0]
            yield page
        if self._has_forgotten():
            # The primary key; a run is short, so those that begin well before hold nothing of this range.
            runs = self._all(
                "SELECT first_position, checksums FROM forgotten_run WHERE first_position <= ? AND last_position > ?",
                (to, after),
            )
            for first, checksums in runs:
                yield [(place, checksum) for place, checksum in checksums_from(first, checksums) if after < place <= to]

    def cuts(self, terms: Sequence[Term], after: int, to: int, every: int) -> list[int]:
        """The positions of every so-manieth event in (after, to] that the terms hold for."""
        where, parameters = _where(terms)
        return [
            position
            for (position,) in self._all(
                "SELECT position FROM (SELECT position, row_number() OVER (ORDER BY position) AS number FROM event "
                f"WHERE position > ? AND position <= ?{where}) WHERE number % ? = 0",
                (after, to, *parameters, every),
            )
        ]

    def nth(self, terms: Sequence[Term], after: int, to: int, number: int) -> int | None:
        """The position of the so-manieth event in (after, to] that the terms hold for; None if there are fewer."""
        where, parameters = _where(terms)
        sql = (
            f"SELECT position FROM event WHERE position > ? AND position <= ?{where} ORDER BY position LIMIT 1 OFFSET ?"
        )
        found = self._all(sql, (after, to, *parameters, number - 1))
        return int(found[0][0]) if found else None

    def other_columns(self) -> tuple[str, ...]:
        """Columns of events that this release knows nothing about."""
        names = [name for (name,) in self._all("SELECT name FROM pragma_table_info('event')", ())]
        return tuple(name for name in names if name not in _KNOWN)

    def pages(
        self, columns: Sequence[str], terms: Sequence[Term], after: int, to: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of these columns in order of position, of the events in (after, to] that the terms hold for.

        Without terms every position has to be there. Raises Corruption if one is not, and Archived if the terms may
        hold for events that have left the ledger: nothing is no answer for what was there.
        """
        where, parameters = _where(terms)
        chosen = ", ".join(("position", *map(_column, columns), _size_of(columns)))
        sql = f"SELECT {chosen} FROM event WHERE position > ? AND position <= ?{where} ORDER BY position LIMIT ?"
        last, is_whole = after, not terms
        if terms:
            self._check_kept(terms, after, to)
        while last < to:
            page = self._page(sql, (last, to, *parameters, _PAGE_ROWS))
            if is_whole:
                self._check_whole(page, last, to)
            if not page:
                return
            last = page[-1][0]
            yield [row[1:-1] for row in page]

    def _page(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """As many rows as memory is for."""
        rows: list[tuple[Any, ...]] = []
        size = 0
        with explained(self._path):
            cursor = self._connection.execute(sql, parameters)
            try:
                for row in cursor:
                    rows.append(row)
                    size += row[-1]
                    if size >= _PAGE_BYTES:
                        break
            finally:
                cursor.close()
        return rows

    def _check_whole(self, page: list[tuple[Any, ...]], last: int, to: int) -> None:
        expected = last + len(page)
        if not page or page[-1][0] != expected:
            missing = next((last + n for n, row in enumerate(page, 1) if row[0] != last + n), expected + 1)
            self._check_forgotten(missing)
            raise Corruption(
                f"{self._path} has no event at position {missing}, though it has committed up to {to}",
                hint="run noetl verify --all",
            )

    def _has_forgotten(self) -> bool:
        """Whether events may have left for an archive; ledgers of earlier releases cannot tell."""
        return bool(self._all("SELECT 1 FROM sqlite_schema WHERE name = 'forgotten_run'", ()))

    def _check_kept(self, terms: Sequence[Term], after: int, to: int) -> None:
        left = "JOIN forgotten USING (tenant_id, root) WHERE run.last_position > ? AND run.first_position <= ?"
        sql = f"SELECT DISTINCT tenant_id, root, uri FROM forgotten_run AS run {left}"
        for tenant_id, root, uri in self._all(sql, (after, to)) if self._has_forgotten() else ():
            if concerns(terms, Stream(tenant_id, root)):
                raise Archived(root, uri)

    def _check_forgotten(self, position: int) -> None:
        """Raise NotFound if the event at a position has left the ledger for an archive."""
        covers = "SELECT 1 FROM forgotten_run WHERE first_position <= ? AND last_position >= ?"
        if self._has_forgotten() and self._all(covers, (position, position)):
            raise NotFound(
                f"the event at position {position} has left {self._path} for an archive",
                hint="noetl restore puts the events of an archive back",
            )

    def _all(self, sql: str, parameters: tuple[Any, ...]) -> list[Any]:
        with explained(self._path):
            return self._connection.execute(sql, parameters).fetchall()

    def __enter__(self) -> SqliteEventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _column(name: str) -> str:
    return f'"{name.replace(chr(34), chr(34) * 2)}"'


def _size_of(columns: Sequence[str]) -> str:
    """What a row is in memory, nearly: only these are ever long."""
    long = [f"length(coalesce({name}, ''))" for name in columns if name in _TEXTS]
    return " + ".join(long) or "0"


def _where(terms: Sequence[Term]) -> tuple[str, tuple[Any, ...]]:
    """The condition, beginning with AND, and its parameters. Raises InvalidInput."""
    parts: list[str] = []
    parameters: list[Any] = []
    for column, operator, value in terms:
        if column not in _KNOWN or operator not in OPERATORS:
            raise InvalidInput(f"events cannot be chosen by {column} {operator}")
        if operator.startswith("is "):
            parts.append(f"{column} {operator.upper()}")
        elif operator == "in":
            values = list(value)
            if len(values) > _MOST_IN:
                raise InvalidInput(
                    f"{len(values)} values of {column} are too many to choose by", hint=f"at most {_MOST_IN}"
                )
            parts.append(f"{column} IN ({', '.join('?' * len(values))})")
            parameters += values
        else:
            parts.append(f"{column} {operator} ?")
            parameters.append(value)
    return "".join(f" AND {part}" for part in parts), tuple(parameters)
