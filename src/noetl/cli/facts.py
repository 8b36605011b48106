"""noetl lake facts: keep facts ready beside the lake."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from noetl.cli.exits import OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json

__all__ = ["facts"]


@click.command("facts", epilog="Example: noetl lake facts")
@click.option(
    "--path", type=click.Path(path_type=Path), metavar="DIR", help="Where the lake is  [lake.path, or lake in the home]"
)
@common
def facts(path: Path | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Make facts of the events that came to the lake since the last time, so that noetl sql need not.

    Without it, facts are the same, and made while somebody asks. It may be killed at any moment and run twice at once.
    """
    return run_async(_make(path, home, tenant, as_json))


async def _make(path: Path | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.history import lag_of, make_facts
    from noetl.runtime.lake import lake_of

    settings, place = settings_of(tenant), home_of(home)
    lake = lake_of(place, settings, path)
    lag_of(place, settings, lake)  # raises if there is no lake, or one of another ledger
    made = await make_facts(place, settings, lake)
    if as_json:
        print_json({"path": str(lake.path), **msgspec.to_builtins(made)})
    elif made.commits:
        note(f"facts of positions {made.first_position} to {made.last_position} are ready")
    else:
        note(f"facts are ready up to position {made.last_position}; nothing has come since")
    return OK
