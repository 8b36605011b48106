"""Rows of a query as somebody wants them: a table or a chart for eyes, CSV, JSON or Parquet for programs."""

from __future__ import annotations

import csv
import io
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from noetl.cli.charts import Series, bars, columns
from noetl.cli.output import console, print_json, table
from noetl.errors import InvalidInput, StorageFull, Unavailable
from noetl.kernel.plain import with_text_ids

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "format_of", "show"]

FORMATS = ("table", "csv", "json", "parquet", "chart")
_WIDEST = 100
_ENDINGS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_NO_SPACE = (28, 122)  # ENOSPC, EDQUOT


def format_of(asked: str | None, out: Path | None) -> str:
    """The format that is meant: the one that was asked for, else what the name of the file says, else a table."""
    found = asked or (_ENDINGS.get(out.suffix.lower()) if out is not None else None) or "table"
    if found == "parquet" and out is None:
        raise InvalidInput("Parquet needs a file to write to", hint="add --out FILE")
    return found


def show(rows: pa.Table, format_: str, out: Path | None, about: Mapping[str, Any]) -> None:
    """Print rows, or write them to a file, which is there whole or not at all. `about` stands beside rows of JSON."""
    if out is None:
        _print(rows, format_, about)
        return
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        _write(rows, format_, draft, about)
        draft.replace(out)
    except OSError as error:
        what = f"{out} cannot be written: {error.strerror or error}"
        raise (StorageFull(what) if error.errno in _NO_SPACE else Unavailable(what, hint="check --out")) from None
    finally:
        draft.unlink(missing_ok=True)


def _print(rows: pa.Table, format_: str, about: Mapping[str, Any]) -> None:
    if format_ == "csv":
        _write_csv(rows, sys.stdout)
    elif format_ == "json":
        print_json(_document(rows, about))
    elif format_ == "chart":
        click.echo("\n".join(_chart(rows, min(console().width, _WIDEST))))
    else:
        right = {field.name for field in rows.schema if _is_number(field.type)}
        table(None, rows.column_names, ([_text(cell) for cell in row] for row in _rows(rows)), right=right)


def _write(rows: pa.Table, format_: str, draft: Path, about: Mapping[str, Any]) -> None:
    if format_ == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(rows, draft, compression="zstd")
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        return
    text = io.StringIO()
    if format_ == "csv":
        _write_csv(rows, text)
    elif format_ == "json":
        text.write(msgspec.json.encode(_document(rows, about)).decode() + "\n")
    elif format_ == "chart":
        text.write("\n".join(_chart(rows, _WIDEST)) + "\n")
    else:
        raise InvalidInput("a table is for a terminal", hint="add --format csv, json or parquet to write a file")
    draft.write_text(text.getvalue(), encoding="utf-8")


def _write_csv(rows: pa.Table, to: TextIO) -> None:
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow(rows.column_names)
    writer.writerows(["" if cell is None else _text(cell) for cell in row] for row in _rows(rows))


def _document(rows: pa.Table, about: Mapping[str, Any]) -> dict[str, Any]:
    found = [{"name": field.name, "type": str(field.type)} for field in rows.schema]
    named: list[Any] = [
        with_text_ids(dict(zip(rows.column_names, map(_json, row), strict=True))) for row in _rows(rows)
    ]
    return {**about, "columns": found, "rows": named}


def _rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in rows.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _json(value: Any) -> Any:
    """A value as JSON has it; decimals are text, so that no digit is lost."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _plain(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    return value


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _text(value: Any) -> Any:
    """A value as text, for eyes and for CSV; nothing stays nothing."""
    plain = _json(value)
    if plain is None or isinstance(plain, str):
        return plain
    return msgspec.json.encode(plain).decode()


# --- Charts -----------------------------------------------------------------------------------------------


def _chart(rows: pa.Table, width: int) -> list[str]:
    """Numbers are drawn, and the other columns say what they are of. Over times it is a picture of their course."""
    import pyarrow as pa

    drawn = [field.name for field in rows.schema if _is_number(field.type) and not field.name.endswith("_id")]
    named = [name for name in rows.column_names if name not in drawn]
    if drawn and not named:
        named, drawn = drawn[:1], drawn[1:]
    if not drawn or not rows.num_rows:
        raise InvalidInput(
            "there is nothing to draw" if rows.num_rows else "there are no rows to draw",
            hint="select what to name the bars by, then a number: SELECT status, count(*) FROM executions GROUP BY 1",
        )
    times = len(named) == 1 and pa.types.is_temporal(rows.schema.field(named[0]).type)
    picture: Callable[..., list[str]] = columns if times and rows.num_rows > 1 else bars
    labels = [" ".join(_short(cell) for cell in row) for row in _rows(rows.select(named))]
    series = [Series(name, [None if one is None else float(one) for one in rows[name].to_pylist()]) for name in drawn]
    return picture(labels, series, width)


def _short(value: Any) -> str:
    if isinstance(value, datetime):
        return (
            f"{value:%Y-%m-%d %H:%M}" if value.second == 0 and value.microsecond == 0 else f"{value:%Y-%m-%d %H:%M:%S}"
        )
    return "-" if value is None else str(_text(value))


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
