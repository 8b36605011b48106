"""noetl status: what has become of an execution."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.cli.commands.run import origin_of, summary_of
from noetl.cli.exits import FAILED, OK
from noetl.cli.options import common, execution_id_of, home_of, run_async, settings_of
from noetl.cli.output import print_json, table

__all__ = ["command"]


@click.command(epilog="Example: noetl status 318485246779594112 --json")
@click.argument("execution", metavar="ID")
@common
def command(execution: str, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show the status, result and error of an execution. Exit code 1 if it failed or was cancelled."""
    return run_async(_status(execution_id_of(execution), home, tenant, as_json))


async def _status(execution_id: int, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.embedded.runner import inspect
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        finished = await inspect(embedded, origin_of(settings), execution_id)
        document = await summary_of(embedded, finished)
    if as_json:
        print_json(document)
    else:
        table(None, ("field", "value"), [(name, value) for name, value in document.items() if value is not None])
    return FAILED if finished.status in ("FAILED", "CANCELLED") else OK
