"""Loading a table in parts: rows wait in a staging table, which outlives crashes, and one transaction moves them.

A part is loaded by its number, as often as it takes: what an attempt before has left of it is removed in the same
transaction. The transaction that moves the rows also takes the effect key and drops the staging table. So whoever
comes after a crash finds either the rows that wait or the key that says they were moved.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import Connection, sql

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.tools.loading import EFFECTS, Column, Part, RowRefused, TableShape
from noetl.tools.postgres.bulk import PostgresRefused, table_name, transaction
from noetl.tools.postgres.credential import Place
from noetl.tools.postgres.staging import PART, claim, on_conflict

__all__ = ["PART", "ROW", "Loading"]

ROW = "_noetl_row"
"""The column that says in which order the rows of a part are."""
_WHERE = re.compile(
    r"COPY .*, line (?P<line>\d+)(?:, column (?P<column>.+?)(?:: \"(?P<value>.*)\")?)?(?:: .*)?$", re.DOTALL
)
_MOST_VALUE = 200
_NOTICES_CLIENTS = 140000
_DATA_REFUSED = ("22", "23502")

_Connection = Connection[tuple[Any, ...]]


class Loading:
    """One load of one table. `effect_key` names it, the same for every attempt."""

    def __init__(self, place: Place, table: str, effect_key: str, effect_table: str | None = None) -> None:
        self._place = place
        self._table = table
        self._key = effect_key
        self._mark = hashlib.sha256(effect_key.encode()).hexdigest()[:16]
        self._effects = effect_table
        self._connection: _Connection | None = None
        self._is_stopped = False

    @property
    def staging(self) -> str:
        """The name of the staging table, which is in the schema of the table."""
        return f"noetl_transfer_{self._mark}"

    def stop(self) -> None:
        """Have the server give up what it is doing for this."""
        self._is_stopped = True
        if (connection := self._connection) is not None:
            connection.cancel_safe()

    # --- What there is

    def describe(self) -> TableShape:
        """The table, as it is now. Raises NotFound."""
        with transaction(self._place) as connection:
            return self._shape(connection, table_name(self._table), self._table)

    def _shape(self, connection: _Connection, table: sql.Identifier, shown: str) -> TableShape:
        name = table.as_string(connection)
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull, atthasdef OR attidentity <> '',"
            " attgenerated <> '' OR attidentity = 'a'"
            " FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [name],
        ).fetchall()
        if not columns:
            raise NotFound(f"postgres has no table {shown}", hint="create it in a step before this one")
        key = connection.execute(
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)"
            " WHERE indrelid = to_regclass(%s) AND indisprimary ORDER BY array_position(indkey::int2[], attnum)",
            [name],
        ).fetchall()
        made = [
            Column(name=one[0], type=one[1], is_nullable=one[2], has_default=one[3], is_generated=one[4])
            for one in columns
        ]
        return TableShape(name=shown, columns=tuple(made), key=tuple(row[0] for row in key))

    def _schema(self, connection: _Connection) -> str:
        row = connection.execute(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = to_regclass(%s)",
            [table_name(self._table).as_string(connection)],
        ).fetchone()
        if row is None:
            raise NotFound(f"postgres has no table {self._table}", hint="create it in a step before this one")
        return str(row[0])

    def _staging(self, connection: _Connection) -> sql.Identifier:
        return sql.Identifier(self._schema(connection), self.staging)

    # --- Loading

    def create(self, columns: Sequence[Column]) -> None:
        """Make the staging table anew, with these columns."""
        own = [
            sql.SQL("{} {}{}").format(
                sql.Identifier(one.name), sql.SQL(one.type), sql.SQL("" if one.is_nullable else " NOT NULL")
            )
            for one in columns
        ]
        ours = [sql.SQL("{} bigint NOT NULL").format(sql.Identifier(name)) for name in (PART, ROW)]
        with transaction(self._place) as connection:
            staging = self._staging(connection)
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(staging))
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(staging, sql.SQL(", ").join([*ours, *own])))

    def waiting(self) -> TableShape:
        """The columns of the staging table. Raises NotFound if it is gone."""
        with transaction(self._place) as connection:
            return self._waiting(connection)

    def _waiting(self, connection: _Connection) -> TableShape:
        try:
            shape = self._shape(connection, self._staging(connection), self.staging)
        except NotFound as problem:
            if self.staging not in problem.message:
                raise
            raise NotFound(
                f"the staging table {self.staging} of {self._table} is gone", hint="run the step again"
            ) from None
        return TableShape(name=shape.name, columns=tuple(c for c in shape.columns if c.name not in (PART, ROW)))

    def load(self, part: int, columns: Sequence[Column], pieces: Iterable[bytes]) -> None:
        """Take the rows of a part, as CSV whose first two columns are the part and the number of the row.

        Raises RowRefused for a value that its column does not take.
        """
        names = [PART, ROW, *(column.name for column in columns)]
        try:
            with transaction(self._place) as connection:
                _end_with_client(connection)
                staging = self._staging(connection)
                # Two attempts of one part, of which one is given up, must not both leave their rows.
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{self._mark}/{part}"])
                connection.execute(
                    sql.SQL("DELETE FROM {} WHERE {} = {}").format(staging, sql.Identifier(PART), sql.Literal(part))
                )
                text = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
                    staging, sql.SQL(", ").join(map(sql.Identifier, names))
                )
                with connection.cursor() as cursor, cursor.copy(text) as copy:
                    for piece in pieces:
                        copy.write(piece)
        except PostgresRefused as error:
            raise _refused(error.cause, columns) or error from None

    # --- Ending

    def move(self, parts: Sequence[Part], mode: str, key: Sequence[str]) -> bool:
        """Move the rows of all parts in one transaction. False if that was done before.

        Raises IntegrityMismatch if not all of them are there.
        """
        with transaction(self._place) as connection:
            self._connection = connection
            try:
                _end_with_client(connection)
                if self._is_stopped:
                    raise InvalidInput("the load was given up")
                return self._move(connection, parts, mode, key)
            finally:
                self._connection = None

    def _move(self, connection: _Connection, parts: Sequence[Part], mode: str, key: Sequence[str]) -> bool:
        staging = self._staging(connection)
        if not self._claim(connection):
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(staging))
            return False
        columns = [column.name for column in self._waiting(connection).columns]
        self._check(connection, staging, parts)
        to = table_name(self._table)
        if mode == "replace":
            connection.execute(sql.SQL("TRUNCATE {}").format(to))
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        numbers = [part.number for part in parts]
        chosen = sql.SQL("SELECT {} FROM {} WHERE {} = ANY(%s)").format(listed, staging, sql.Identifier(PART))
        order = sql.SQL(" ORDER BY {}, {}").format(sql.Identifier(PART), sql.Identifier(ROW))
        if mode == "upsert":  # of several rows with one key the last counts, as it would if they came one by one
            keys = sql.SQL(", ").join(map(sql.Identifier, key))
            chosen = sql.SQL("SELECT DISTINCT ON ({}) {} FROM {} WHERE {} = ANY(%s)").format(
                keys, listed, staging, sql.Identifier(PART)
            )
            order = sql.SQL(" ORDER BY {}, {} DESC, {} DESC").format(keys, sql.Identifier(PART), sql.Identifier(ROW))
        insert = sql.SQL("INSERT INTO {} ({}) ").format(to, listed) + chosen + order
        if mode == "upsert":
            insert += on_conflict(columns, key)
        connection.execute(insert, [numbers])
        connection.execute(sql.SQL("DROP TABLE {}").format(staging))
        return True

    def drop(self) -> None:
        """Nothing is to be moved: remove the staging table, if it is there."""
        with transaction(self._place) as connection:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._staging(connection)))

    def _claim(self, connection: _Connection) -> bool:
        """Take the effect key; False if it is taken. The table is as those of postgres tasks are."""
        name = sql.Identifier(self._schema(connection), EFFECTS)
        name = table_name(self._effects) if self._effects else name
        return claim(connection, name, self._key)

    def _check(self, connection: _Connection, staging: sql.Identifier, parts: Sequence[Part]) -> None:
        text = sql.SQL("SELECT {0}, count(*) FROM {1} GROUP BY {0}").format(sql.Identifier(PART), staging)
        found: dict[int, int] = dict(connection.execute(text).fetchall())
        for part in parts:
            if found.get(part.number, 0) != part.rows:
                raise IntegrityMismatch(
                    f"part {part.number} has {part.rows} rows, and {found.get(part.number, 0)} are in {self.staging}",
                    hint="somebody else has changed the staging table; run the step again",
                )


def _end_with_client(connection: _Connection) -> None:
    """Have the server notice that this process is gone, also while it waits for a lock: nobody shall wait for it."""
    if connection.info.server_version >= _NOTICES_CLIENTS:
        with contextlib.suppress(psycopg.Error), connection.transaction():  # not every platform can
            connection.execute("SET LOCAL client_connection_check_interval = '2s'")


def _refused(error: psycopg.Error, columns: Sequence[Column]) -> RowRefused | None:
    """Which value it was, as far as the server says."""
    if not (error.sqlstate or "").startswith(_DATA_REFUSED):
        return None
    where = _WHERE.search(error.diag.context or "")
    if where is None:
        return None
    name = where["column"] or error.diag.column_name or ""
    kind = next((column.type for column in columns if column.name == name), "what it is to be")
    value = None if where["value"] is None else where["value"][:_MOST_VALUE]
    why = " ".join((error.diag.message_primary or str(error)).split())
    return RowRefused(int(where["line"]) - 1, name, value, kind, why)
