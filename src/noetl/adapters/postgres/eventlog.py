"""The events of a ledger in Postgres as plain rows, by ranges of positions, for readers that take many of them.

A connection of the reader's own, in the process that reads, and read only: Spark's executors have no event loop, and
need nothing of what a writer keeps. Each page is a statement of its own, so that nobody holds a snapshot open for long;
events never change, so pages fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from noetl.adapters.postgres.address import Address
from noetl.adapters.postgres.failures import explain
from noetl.adapters.postgres.migrations import SCHEMA
from noetl.adapters.postgres.rows import COLUMNS
from noetl.errors import Archived, Corruption, InvalidInput, NotFound
from noetl.kernel.tail import Stream
from noetl.ports.forgetting import checksums_from, concerns

__all__ = ["PostgresEventLog"]

_OPERATORS = ("=", "<", "<=", ">", ">=", "in", "is null", "is not null")
_KNOWN = frozenset(COLUMNS.split(", "))
_PAGE_ROWS = 4096
_PAGE_CHECKSUMS = 65_536
_ANSWER_SECONDS = 60.0
# A plan that is compiled costs more than any of these statements.
_CONFIGURE = """
    SELECT
        set_config('search_path', %(schema)s, false),
        set_config('default_transaction_read_only', 'on', false),
        set_config('jit', 'off', false)
"""
Terms = Sequence[tuple[str, str, Any]]


class PostgresEventLog:
    """One ledger, connected to by the process that wants to read it."""

    def __init__(self, url: str, *, patience: float = 10.0) -> None:
        self._address = Address(url)
        conninfo = self._address.conninfo(connect_seconds=patience, lost_seconds=_ANSWER_SECONDS)
        try:
            self._connection = psycopg.connect(conninfo, autocommit=True)
            self._connection.execute(_CONFIGURE, {"schema": SCHEMA})
        except psycopg.Error as error:
            raise explain(error, self._address) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def head(self) -> int:
        """The position of the last committed event, 0 when there is none."""
        found = self._all("SELECT position FROM ledger_head", ())
        return int(found[0][0]) if found else 0

    def checksum(self, position: int) -> str | None:
        """The checksum of the event at a position, by which a ledger is recognised; None if there is none."""
        found = self._all("SELECT envelope_checksum FROM event_log WHERE position = %s", (position,))
        return str(found[0][0]) if found else None

    def checksums(self, after: int, to: int) -> Iterator[list[tuple[int, str]]]:
        """Positions in (after, to] and the checksums of their events, those that have gone to an archive included."""
        last = after
        sql = (
            "SELECT position, envelope_checksum FROM event_log WHERE position > %s AND position <= %s "
            "ORDER BY position LIMIT %s"
        )
        while page := self._all(sql, (last, to, _PAGE_CHECKSUMS)):
            last = page[-1][0]
            yield [(position, checksum) for position, checksum in page]
        if self._has_forgotten():
            runs = self._all(
                "SELECT first_position, checksums FROM forgotten_run WHERE first_position <= %s AND last_position > %s",
                (to, after),
            )
            for first, checksums in runs:
                yield [(place, checksum) for place, checksum in checksums_from(first, checksums) if after < place <= to]

    def cuts(self, terms: Terms, after: int, to: int, every: int) -> list[int]:
        """The positions of every so-manieth event in (after, to] that the terms hold for."""
        where, parameters = _where(terms)
        sql = (
            "SELECT position FROM (SELECT position, row_number() OVER (ORDER BY position) AS number FROM event_log "
            f"WHERE position > %s AND position <= %s{where}) AS numbered WHERE number %% %s = 0 ORDER BY position"
        )
        return [int(position) for (position,) in self._all(sql, (after, to, *parameters, every))]

    def nth(self, terms: Terms, after: int, to: int, number: int) -> int | None:
        """The position of the so-manieth event in (after, to] that the terms hold for; None if there are fewer."""
        where, parameters = _where(terms)
        sql = (
            f"SELECT position FROM event_log WHERE position > %s AND position <= %s{where} "
            "ORDER BY position LIMIT 1 OFFSET %s"
        )
        found = self._all(sql, (after, to, *parameters, number - 1))
        return int(found[0][0]) if found else None

    def other_columns(self) -> tuple[str, ...]:
        """Columns of events that this release knows nothing about."""
        sql = (
            "SELECT attname FROM pg_attribute WHERE attrelid = 'event_log'::REGCLASS AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum"
        )
        return tuple(str(name) for (name,) in self._all(sql, ()) if name not in _KNOWN)

    def pages(self, columns: Sequence[str], terms: Terms, after: int, to: int) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of these columns in order of position, of the events in (after, to] that the terms hold for.

        Without terms every position has to be there. Raises Corruption if one is not, and Archived if the terms may
        hold for events that have left the ledger: nothing is no answer for what was there.
        """
        where, parameters = _where(terms)
        chosen = ", ".join(("position", *map(_column, columns)))
        # The primary key.
        sql = f"SELECT {chosen} FROM event_log WHERE position > %s AND position <= %s{where} ORDER BY position LIMIT %s"
        last = after
        if terms:
            self._check_kept(terms, after, to)
        while last < to:
            page = self._all(sql, (last, to, *parameters, _PAGE_ROWS))
            if not terms:
                self._check_whole(page, last, to)
            if not page:
                return
            last = page[-1][0]
            yield [row[1:] for row in page]

    def _check_whole(self, page: list[tuple[Any, ...]], last: int, to: int) -> None:
        expected = last + len(page)
        if not page or page[-1][0] != expected:
            missing = next((last + n for n, row in enumerate(page, 1) if row[0] != last + n), expected + 1)
            self._check_forgotten(missing)
            raise Corruption(
                f"{self._address} has no event at position {missing}, though it has committed up to {to}",
                hint="run noetl verify --all",
            )

    def _has_forgotten(self) -> bool:
        """Whether events may have left for an archive; ledgers of earlier releases cannot tell."""
        return bool(self._all("SELECT 1 WHERE to_regclass('forgotten_run') IS NOT NULL", ()))

    def _check_kept(self, terms: Terms, after: int, to: int) -> None:
        left = "JOIN forgotten USING (tenant_id, root) WHERE run.last_position > %s AND run.first_position <= %s"
        sql = f"SELECT DISTINCT tenant_id, root, uri FROM forgotten_run AS run {left}"
        for tenant_id, root, uri in self._all(sql, (after, to)) if self._has_forgotten() else ():
            if concerns(terms, Stream(tenant_id, root)):
                raise Archived(root, uri)

    def _check_forgotten(self, position: int) -> None:
        """Raise NotFound if the event at a position has left the ledger for an archive."""
        covers = "SELECT 1 FROM forgotten_run WHERE first_position <= %s AND last_position >= %s"
        if self._has_forgotten() and self._all(covers, (position, position)):
            raise NotFound(
                f"the event at position {position} has left {self._address} for an archive",
                hint="noetl restore puts the events of an archive back",
            )

    def _all(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql.encode(), parameters).fetchall()
        except psycopg.Error as error:
            raise explain(error, self._address) from error

    def __enter__(self) -> PostgresEventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _column(name: str) -> str:
    quoted = name.replace('"', '""').replace("%", "%%")
    return f'"{quoted}"'


def _where(terms: Terms) -> tuple[str, tuple[Any, ...]]:
    """The condition, beginning with AND, and its parameters. Raises InvalidInput."""
    parts: list[str] = []
    parameters: list[Any] = []
    for column, operator, value in terms:
        if column not in _KNOWN or operator not in _OPERATORS:
            raise InvalidInput(f"events cannot be chosen by {column} {operator}")
        if operator.startswith("is "):
            parts.append(f"{column} {operator.upper()}")
        elif operator == "in":
            parts.append(f"{column} = ANY(%s)")
            parameters.append(list(value))
        else:
            parts.append(f"{column} {operator} %s")
            parameters.append(value)
    return "".join(f" AND {part}" for part in parts), tuple(parameters)
