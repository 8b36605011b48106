"""noetl status: what has become of an execution."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from noetl.api.summaries import summary_of
from noetl.cli.exits import FAILED, OK
from noetl.cli.options import common, execution_id_of, home_of, run_async, settings_of
from noetl.cli.output import print_json, table
from noetl.cli.remote import context_option, status_on, target_of

__all__ = ["command"]


@click.command(epilog="Example: noetl status 318485246779594112 --json")
@click.argument("execution", metavar="ID")
@context_option
@common
def command(execution: str, context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show the status, result and error of an execution, and of a failed one where it went wrong and what to try.

    Exit code 1 if it failed or was cancelled.
    """
    if (target := target_of(context, home)) is not None:
        return status_on(target, execution, as_json)
    return run_async(_status(execution_id_of(execution), home, tenant, as_json))


async def _status(execution_id: int, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.cli.explaining import explain
    from noetl.cli.faults import fault_of
    from noetl.runtime.embedded.runner import driver_of, inspect
    from noetl.runtime.origin import origin_of
    from noetl.runtime.remote.roster import Roster
    from noetl.runtime.remote.routing import waits_for
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        finished = await inspect(embedded, origin_of(settings), execution_id)
        summary = await summary_of(embedded, finished)
        driver = driver_of(embedded, origin_of(settings))
        if not summary.ended:
            there = await Roster(embedded.kv, embedded.clock).pools()
            waiting = waits_for(await driver.execution(execution_id), there, usual=None)
            summary = msgspec.structs.replace(summary, waiting_for=waiting)
        document = summary.document()
        fault = None if as_json else await fault_of(embedded, driver, execution_id)
    if as_json:
        print_json(document)
    else:
        table(None, ("field", "value"), [(name, value) for name, value in document.items() if value is not None])
        if fault is not None:
            explain(fault)
    return FAILED if finished.status in ("FAILED", "CANCELLED") else OK
