"""noetl sql: ask the history of all executions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from noetl.cli.cutoffs import moment_of
from noetl.cli.exits import OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table
from noetl.cli.sheets import FORMATS, format_of, show
from noetl.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from noetl.data.bulk import Bounds
    from noetl.data.lake.log import Lake
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["command"]

_MOST = {"table": 1000, "chart": 500}


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    as_of: str | None
    format_: str
    out: Path | None
    limit: int | None
    sync: bool


@click.command(epilog="Example: noetl sql 'SELECT status, count(*) FROM executions GROUP BY 1' --as-of 2026-05-16")
@click.argument("query", required=False)
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), metavar="FILE", help="File with the query.")
@click.option("--as-of", metavar="TIME|POSITION", help="As things were then (ISO 8601, or a position of the ledger).")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="How rows are shown  [by --out, or table]")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="File to write  [standard output]")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="How many rows at most; 0 for all.")
@click.option("--sync", is_flag=True, help="Bring the lake up to the ledger first.")
@click.option("--tables", is_flag=True, help="List the tables and their columns.")
@click.option("--path", type=click.Path(path_type=Path), metavar="DIR", help="Where the lake is  [lake.path]")
@common
def command(
    query: str | None,
    file: Path | None,
    as_of: str | None,
    format_: str | None,
    out: Path | None,
    limit: int | None,
    sync: bool,
    tables: bool,
    path: Path | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Ask in SQL what happened, or how things were at a moment, over all executions.

    Tables are read from the event lake: events, executions, stages, frames, commands, loops, business_objects and
    facts. --as-of cuts all of them. Rows are those of one tenant; --tenant '*' shows all. Only queries are run.
    """
    if tables:
        return _list(as_json)
    if as_json and format_ not in (None, "json"):
        raise click.UsageError(f"--json and --format {format_} exclude each other")
    chosen = format_of("json" if as_json else format_, out)
    most = _MOST.get(chosen) if limit is None else (limit or None)
    asked = _Asked(query=_query(query, file), as_of=as_of, format_=chosen, out=out, limit=most, sync=sync)
    settings = settings_of(tenant)
    return run_async(_ask(asked, home_of(home), settings, path))


async def _ask(asked: _Asked, home: Home, settings: Settings, path: Path | None) -> int:
    from noetl.data.bulk import Bounds
    from noetl.runtime.history import ask, bounds_of
    from noetl.runtime.lake import lake_of

    bounds = Bounds() if asked.as_of is None else bounds_of(moment_of(asked.as_of))
    lake = lake_of(home, settings, path)
    if asked.sync:
        await _sync(home, settings, lake)
    _tell_lag(home, settings, lake, bounds)
    answer = await ask(home, settings, lake, asked.query, bounds=bounds, limit=asked.limit)
    about = {"position": answer.position, "as_of": asked.as_of, "more": answer.more}
    show(answer.rows, asked.format_, asked.out, about)
    if answer.more:
        note(f"the first {answer.rows.num_rows:,} rows; --limit N shows more, --limit 0 all")
    if asked.out is not None:
        note(f"{answer.rows.num_rows:,} rows in {asked.out}")
    return OK


async def _sync(home: Home, settings: Settings, lake: Lake) -> None:
    from noetl.cli.stopping import asked_to_stop
    from noetl.runtime.lake import sync_lake

    await sync_lake(home, settings, lake, follow=False, stop=asked_to_stop(), tell=lambda _: None)


def _tell_lag(home: Home, settings: Settings, lake: Lake, bounds: Bounds) -> None:
    from noetl.runtime.history import lag_of

    lag = lag_of(home, settings, lake, bounds)
    if lag is None:
        note("the ledger cannot be asked how far it is: the answer is as of the lake")
    elif lag:
        note(f"the lake is {lag:,} events behind the ledger; --sync brings them first")


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise click.UsageError("give a query, or a file with one: noetl sql QUERY, or noetl sql -f FILE")
    if file is None:
        return query or ""
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None


def _list(as_json: bool) -> int:
    from noetl.data.history.tables import TABLES

    if as_json:
        document = {
            name: {"meaning": found.meaning, "columns": [column._asdict() for column in found.columns]}
            for name, found in TABLES.items()
        }
        print_json({"tables": document})
        return OK
    for name, found in TABLES.items():
        click.secho(f"{name}", bold=True, nl=False)
        click.echo(f": {found.meaning}")
        table(None, ("column", "type", "meaning"), found.columns)
    return OK
