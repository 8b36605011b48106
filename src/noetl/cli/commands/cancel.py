"""noetl cancel: end an execution from outside."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.cli.options import common, execution_id_of, home_of, run_async, settings_of
from noetl.cli.output import print_json
from noetl.cli.remote import cancel_on, context_option, target_of

__all__ = ["command"]


@click.command(epilog='Example: noetl cancel 318485246779594112 --reason "wrong day"')
@click.argument("execution", metavar="ID")
@click.option("--reason", default="cancelled by a user", show_default=True, metavar="TEXT", help="It is recorded.")
@click.option("--no-cascade", is_flag=True, help="Leave the executions it has called alone.")
@context_option
@common
def command(
    execution: str,
    reason: str,
    no_cascade: bool,
    context: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """End an execution and those it has called. Commands that are running finish; nothing follows from them."""
    if (target := target_of(context, home)) is not None:
        return cancel_on(target, execution, reason, not no_cascade, as_json)
    return run_async(_cancel(execution_id_of(execution), reason, not no_cascade, home, tenant, as_json))


async def _cancel(
    execution_id: int, reason: str, cascade: bool, home: Path | None, tenant: str | None, as_json: bool
) -> None:
    from noetl.runtime.embedded.runner import cancel_tree, driver_of
    from noetl.runtime.origin import origin_of
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        driver = driver_of(embedded, origin_of(settings))
        cancelled = await cancel_tree(embedded, driver, execution_id, reason, cascade=cascade)
        await embedded.projector.catch_up()
    status = "cancelled" if execution_id in cancelled else "already_completed"
    if as_json:
        ended = [str(one) for one in cancelled]
        print_json({"execution_id": str(execution_id), "status": status, "cancelled_executions": ended})
    else:
        click.echo(f"{execution_id}: {status.replace('_', ' ')}")
