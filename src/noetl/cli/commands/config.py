"""noetl config: the settings that hold, and why."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.cli.options import common, home_of, settings_of
from noetl.cli.output import print_json, table

__all__ = ["command"]


@click.group("config")
def command() -> None:
    """Show every setting and where it came from."""


@command.command("view", epilog="Example: NOETL_LEDGER__BUSY_TIMEOUT=30s noetl config view")
@common
def view(home: Path | None, tenant: str | None, as_json: bool) -> None:
    """Show each value and where it came from."""
    settings = settings_of(tenant)
    place = home_of(home)
    if as_json:
        values = {item.name: {"value": item.value, "source": item.source} for item in settings.items()}
        print_json({"home": str(place.path), "settings": values})
        return
    click.echo(f"home: {place.path}")
    table(None, ("setting", "value", "from"), [(item.name, item.text, item.source) for item in settings.items()])
