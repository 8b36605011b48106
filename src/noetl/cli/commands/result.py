"""noetl result: what an execution, or one of its steps, has left behind."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.cli.options import common, execution_id_of, home_of, run_async, settings_of
from noetl.cli.remote import context_option, result_on, target_of
from noetl.cli.rows import Look, show
from noetl.errors import NotFound
from noetl.units import parse_duration

__all__ = ["command"]


@click.command(epilog="Example: noetl result 318485246779594112 load --field expect --columns name,failed")
@click.argument("execution", metavar="ID")
@click.argument("step", required=False)
@click.option(
    "--link", metavar="TIME", help="Instead: an address that reads its object, for so long, such as 1h; at most 7d."
)
@click.option("--field", metavar="PATH", help="Only this part of it, such as expect or written.files.")
@click.option("--columns", metavar="NAMES", help="Of the table only these, such as name,failed.")
@click.option("--table", "as_table", is_flag=True, help="Instead: its rows, or the first of them, as a table.")
@context_option
@common
def command(
    execution: str,
    step: str | None,
    link: str | None,
    field: str | None,
    columns: str | None,
    as_table: bool,
    context: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Show the result of an execution, or of one of its steps."""
    names = tuple(name.strip() for name in columns.split(",")) if columns else ()
    as_table = as_table or bool(names)
    if as_table and (as_json or link is not None):
        raise click.UsageError("--table is for eyes; leave out --json and --link")
    look = Look(field=field, as_table=as_table, columns=names, as_json=as_json)
    if (target := target_of(context, home)) is not None:
        if link is not None:
            raise click.UsageError("--link is signed with the keys of a home's store; use it without --context")
        return result_on(target, execution, step, look)
    seconds = None if link is None else parse_duration(link)
    return run_async(_result(execution_id_of(execution), step, seconds, home, tenant, look))


async def _result(
    execution_id: int,
    step: str | None,
    link: float | None,
    home: Path | None,
    tenant: str | None,
    look: Look,
) -> None:
    from noetl.runtime.embedded.runner import driver_of
    from noetl.runtime.origin import origin_of
    from noetl.runtime.showing import described
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        driver = driver_of(embedded, origin_of(settings))
        found = await driver.execution(execution_id)
        name = step or found.control.last_step
        if name is None or name not in found.control.steps or found.control.steps[name].state != "ended":
            ended = ", ".join(sorted(other for other, state in found.control.steps.items() if state.state == "ended"))
            raise NotFound(
                f"execution {execution_id} has no result of step '{name}'", hint=f"steps that ended: {ended}"
            )
        if link is not None:
            from noetl.cli.links import print_link

            await print_link(embedded, found, name, link, look.as_json)
            return
        value = await driver.keeper.result_of(found, name)
        told = described(value, found.control.steps[name].result.get("reference"))
    where = {} if told.ref is None else {"ref": told.ref}
    document = {"execution_id": str(execution_id), "step": name, "value": told.value, **where}
    show({**document, "rows": told.rows, "bytes": told.bytes, "sha256": told.sha256}, name, look)
