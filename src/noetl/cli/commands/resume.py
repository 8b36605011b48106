"""noetl resume: go on with an execution that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.commands.run import execute
from noetl.cli.options import common, execution_id_of, home_of, run_async, settings_of

if TYPE_CHECKING:
    from noetl.runtime.embedded.runner import Runner

__all__ = ["command"]


@click.command(epilog="Example: noetl resume 318485246779594112")
@click.argument("execution", metavar="ID")
@click.option("--offline", is_flag=True, help="Leave the run as files below local/ in the home, for noetl push.")
@click.option("-v", "--verbose", is_flag=True, help="Print every event as a line.")
@common
def command(
    execution: str, offline: bool, verbose: bool, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Go on with an execution whose process was killed, after the last step that was completed.

    What was in flight is run again. An execution that has ended is only shown.
    """
    return run_async(_resume(execution_id_of(execution), offline, verbose, home, tenant, as_json))


async def _resume(
    execution_id: int, offline: bool, verbose: bool, home: Path | None, tenant: str | None, as_json: bool
) -> int:
    from noetl.runtime.embedded.runner import inspect
    from noetl.runtime.origin import origin_of
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)

    async def begin(_: Runner) -> int:
        return execution_id

    async with open_embedded(place, settings) as embedded:
        await inspect(embedded, origin_of(settings), execution_id)  # one that is not there is said so at once
        return await execute(embedded, settings, place.path, begin, as_json, offline=offline, verbose=verbose)
