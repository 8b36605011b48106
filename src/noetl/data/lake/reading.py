"""Files of a lake as tables, whichever release has written them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import File, Lake
from noetl.errors import Corruption, NoetlError

__all__ = ["Damaged", "check_content", "read_file"]


class Damaged(Corruption):
    """A file of a lake that is not what was committed."""

    def __init__(self, file: File, what: str) -> None:
        super().__init__(f"{file.path}: {what}", hint="noetl lake verify --repair makes it again from the ledger")
        self.file = file


def read_file(lake: Lake, file: File, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file. A column that its writer did not know yet is null; one that only its writer knows comes
    last. Raises Damaged."""
    try:
        reader = pq.ParquetFile(lake.place(file))
        have = reader.schema_arrow.names
        asked = list(columns) if columns is not None else [*SCHEMA.names, *(n for n in have if n not in SCHEMA.names)]
        table = reader.read([name for name in asked if name in have])
    except NoetlError:
        raise
    except FileNotFoundError:
        raise Damaged(file, "it is not there") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Damaged(file, f"it cannot be read: {reason}") from None
    for name in asked:
        if name not in have:
            kind = SCHEMA.field(name).type if name in SCHEMA.names else pa.null()
            table = table.append_column(pa.field(name, kind), pa.nulls(table.num_rows, kind))
    return table.select(asked)


def check_content(lake: Lake, file: File) -> None:
    """Raise Damaged unless the bytes of a file are those that were committed."""
    try:
        with lake.place(file).open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        what = "it is not there" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error.strerror}"
        raise Damaged(file, what) from None
    if found != file.sha256:
        raise Damaged(file, f"its sha256 is {found[:16]}..., and {file.sha256[:16]}... was committed")
