"""noetl db: the tables of a ledger that is kept in Postgres."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.exits import OK, UNAVAILABLE
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.runtime.schema import Installed

__all__ = ["command"]


@click.group("db")
def command() -> None:
    """Prepare the Postgres database that a ledger is kept in, see how it stands, and give room back."""


def _database(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--database", metavar="URL", help="Which database  [ledger.url, NOETL_DATABASE]")(function)


@command.command("migrate", epilog="Example: noetl db migrate --database postgresql://noetl@db.example.com/noetl")
@_database
@common
def migrate(database: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Bring the tables up to this release, all or nothing.

    Others may use the database meanwhile, and may migrate it at the same time: one does, and nothing is done twice.
    """
    return run_async(_migrate(database, as_json))


@command.command("status", epilog="Example: noetl db status --json")
@_database
@common
def status(database: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Say which migrations were done, and how far the ledger has come. Exits 3 if there are any to be done."""
    return run_async(_status(database, as_json))


@command.command("vacuum", epilog="Example: noetl db vacuum")
@click.option("--full", is_flag=True, help="In Postgres: write tables anew, which nobody can use meanwhile.")
@common
def vacuum(full: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Give the room back that events have left which are not in the ledger any more; also for a home's own file.

    A file is written anew, for which it takes as much room again; others may read meanwhile, and writers wait. Postgres
    uses the room for new rows; only with --full it goes back to the disk.
    """
    return run_async(_vacuum(full, home, as_json))


async def _vacuum(full: bool, home: Path | None, as_json: bool) -> int:
    from noetl.cli.counting import size
    from noetl.runtime.vacuum import vacuum_ledger

    before, after = await vacuum_ledger(home_of(home), settings_of(), full=full)
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    else:
        note(f"the ledger had {size(before)} and has {size(after)} now")
    return OK


async def _migrate(database: str | None, as_json: bool) -> int:
    from noetl.runtime.schema import migrate_database

    name, done = await migrate_database(settings_of(), database)
    if as_json:
        print_json({"database": name, "applied": done})
    elif done:
        note(f"{name} is up to date; done were {', '.join(done)}")
    else:
        note(f"{name} was up to date already")
    return OK


async def _status(database: str | None, as_json: bool) -> int:
    from noetl.runtime.schema import look_at_database

    found = await look_at_database(settings_of(), database)
    if as_json:
        print_json(found)
    else:
        _show(found)
    return OK if found.current else UNAVAILABLE


def _show(found: Installed) -> None:
    if found.applied:
        table(None, ("migration", "done at"), [(one.name, one.applied_at) for one in found.applied])
    click.echo(f"{found.database} (Postgres {found.server_version})")
    if found.position is not None:
        click.echo(f"the ledger has {found.position} events in {found.streams} streams")
    for warning in found.warnings:
        click.secho(warning, fg="yellow", err=True)
    if found.current:
        click.echo("it is up to date")
    else:
        click.secho(f"to be done: {', '.join(found.pending)}; noetl db migrate does it", fg="yellow")
