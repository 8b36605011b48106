"""A table that rows wait in until all of them are there, and the transaction that moves them on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from psycopg import Connection, sql

from noetl.errors import InvalidInput
from noetl.tools.postgres.bulk import copy_in, table_name, transaction
from noetl.tools.postgres.credential import Place

__all__ = ["PART", "Move", "Staging", "claim", "on_conflict"]

PART = "_noetl_part"
"""The column that says which part of the work a row is from."""
_CREATE_LOCK = 0x6E6F65746C
"""Who makes the table of effect keys waits for others that do."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go, and what becomes of those that are there: append, overwrite, upsert, error or ignore."""

    table: str
    mode: str
    key: tuple[str, ...] = ()
    effect_table: str | None = None
    effect_key: str = ""


class Staging:
    """The staging table of one task. Every attempt of the task uses the same."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self.name = name
        self._table = sql.Identifier(name)

    def create(self, columns: Sequence[tuple[str, str]]) -> None:
        """Make it anew, with columns of these names and types."""
        fields = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns]
        made = sql.SQL(", ").join([sql.SQL("{} integer").format(sql.Identifier(PART)), *fields])
        with transaction(self._place) as connection:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table))
            connection.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(self._table, made))

    def copy(self, part: int, columns: Sequence[str], pieces: Iterable[bytes], *, again: bool) -> None:
        """Take the rows of one part, all or none; with `again`, in place of those that an attempt before has left."""
        first = sql.SQL("DELETE FROM {} WHERE {} = {}").format(self._table, sql.Identifier(PART), sql.Literal(part))
        copy_in(self._place, self.name, [PART, *columns], pieces, first=first if again else None)

    def preview(self, columns: Sequence[str], most: int) -> list[Any]:
        """The first rows as JSON."""
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        text = sql.SQL("SELECT row_to_json(q) FROM (SELECT {} FROM {} ORDER BY {} LIMIT {}) q")
        with transaction(self._place) as connection:
            found = connection.execute(text.format(listed, self._table, sql.Identifier(PART), sql.Literal(most)))
            return [row[0] for row in found.fetchall()]

    def move(self, columns: Sequence[str], move: Move) -> bool:
        """Move all rows in one transaction. False if there was nothing to do: an earlier delivery has done it, or
        there are rows already and they are to stay."""
        with transaction(self._place) as connection:
            done = self._move(connection, columns, move)
            connection.execute(sql.SQL("DROP TABLE {}").format(self._table))
        return done

    def drop(self) -> None:
        """Remove it, if it is there."""
        with transaction(self._place) as connection:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table))

    def _move(self, connection: Connection[tuple[Any, ...]], columns: Sequence[str], move: Move) -> bool:
        to, listed = table_name(move.table), sql.SQL(", ").join(map(sql.Identifier, columns))
        if move.effect_table and not claim(connection, table_name(move.effect_table), move.effect_key):
            return False
        found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [to.as_string(connection)])
        if found.fetchone() != (True,):
            made = sql.SQL("CREATE TABLE {} AS SELECT {} FROM {} WHERE false").format(to, listed, self._table)
            connection.execute(made)
            if move.mode == "upsert":
                keys = sql.SQL(", ").join(map(sql.Identifier, move.key))
                connection.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(to, keys))
        has_rows = connection.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(to)).fetchone() == (True,)
        if has_rows and move.mode == "error":
            raise InvalidInput(f"output: {move.table} has rows already", hint="choose append, overwrite or ignore")
        if has_rows and move.mode == "ignore":
            return False
        if move.mode == "overwrite":
            connection.execute(sql.SQL("DELETE FROM {}").format(to))
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(to, listed, listed, self._table)
        if move.mode == "upsert":
            insert += on_conflict(columns, move.key)
        connection.execute(insert)
        return True


def on_conflict(columns: Sequence[str], key: Sequence[str]) -> sql.Composable:
    """What an INSERT ends with that takes the place of rows with the same key."""
    keys = sql.SQL(", ").join(map(sql.Identifier, key))
    others = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in columns if name not in key]
    then = sql.SQL("UPDATE SET ") + sql.SQL(", ").join(others) if others else sql.SQL("NOTHING")
    return sql.SQL(" ON CONFLICT ({}) DO ").format(keys) + then


def claim(connection: Connection[tuple[Any, ...]], table: sql.Identifier, key: str) -> bool:
    """Take the effect key; False if it is taken. The table, made if it is not there, is as that of postgres tasks."""
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table.as_string(connection)])
    if found.fetchone() != (True,):
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATE_LOCK])
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (effect_key text PRIMARY KEY, result json,"
                " created_at timestamptz NOT NULL DEFAULT now())"
            ).format(table)
        )
    text = sql.SQL("INSERT INTO {} (effect_key) VALUES (%s) ON CONFLICT (effect_key) DO NOTHING").format(table)
    return connection.execute(text, [key]).rowcount == 1
