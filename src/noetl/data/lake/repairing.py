"""Files that are damaged or gone, made again from the ledger."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from noetl.data.lake.compacting import part_of
from noetl.data.lake.layout import SCHEMA, pieces
from noetl.data.lake.log import File, Lake
from noetl.data.lake.writing import write_piece
from noetl.data.source.events import Span, batches
from noetl.data.source.log import EventLog, LogSpec, Term, open_log
from noetl.errors import Conflict, NoetlError

__all__ = ["Repaired", "repair"]


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a damaged file."""

    file: str
    instead: str | None = None
    """The file that took its place."""
    why_not: str | None = None


def repair(lake: Lake, spec: LogSpec, damaged: Sequence[File]) -> list[Repaired]:
    """Make each file again, if the ledger still has all of its events, and let the new ones take their place.

    What was damaged is left where it is, for whoever wants to look at it, until the lake is vacuumed.
    """
    with open_log(spec) as log:
        return [_repaired(lake, log, file) for file in damaged]


def _repaired(lake: Lake, log: EventLog, file: File) -> Repaired:
    try:
        rows = _rows(log, file)
        if rows.num_rows != file.rows:
            return Repaired(
                file=file.path,
                why_not=f"the ledger has {rows.num_rows} of its {file.rows} events; the others have left it",
            )
        new = write_piece(lake.path, part_of(file), rows, lake.snapshot().commit + 1)
        lake.compact([new], [file], now=time.time_ns() // 1000)
    except Conflict:
        return Repaired(file=file.path, why_not="somebody else has changed the lake meanwhile; run it again")
    except NoetlError as error:
        return Repaired(file=file.path, why_not=error.message)
    return Repaired(file=file.path, instead=new.path)


def _rows(log: EventLog, file: File) -> pa.Table:
    """The events between the file's first and last that belong to its part: files of a part never overlap."""
    wanted = (Term("tenant_id", "=", file.tenant),)
    span = Span(file.first_position - 1, file.last_position)
    found = [
        piece.rows
        for batch in batches(log, SCHEMA, wanted, span)
        for piece in pieces(pa.Table.from_batches([batch]))
        if piece.part == part_of(file)
    ]
    if not found:
        return SCHEMA.empty_table()
    (rows,) = [piece.rows for piece in pieces(pa.concat_tables(found))]
    return rows
