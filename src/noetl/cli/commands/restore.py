"""noetl restore: an archived history back into a ledger."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.cli.exits import OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.errors import Conflict, IntegrityMismatch

__all__ = ["command"]


@click.command("restore", epilog="Example: noetl restore s3://cold/noetl/env=prod/.../execution=318485246779594112/")
@click.argument("uri", metavar="URI")
@click.option("--trusted", metavar="KEY", help="The public key that must have signed it.")
@common
def command(uri: str, trusted: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Bring an archived execution, with all that it has called, into the ledger of this home.

    The bundle is read and checked whole first; then all of its events are taken or none. What is here already stays,
    so restoring twice is harmless. Results come along if the bundle has copies of them.
    """
    return run_async(_restore(uri, trusted, home, tenant, as_json))


async def _restore(uri: str, trusted: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    import msgspec

    from noetl.cli.commands.archive import open_at
    from noetl.runtime.archiving.restoring import restore
    from noetl.runtime.wiring import open_embedded

    bundle = await open_at(uri, trusted)
    async with open_embedded(home_of(home), settings_of(tenant), create=True) as embedded:
        try:
            restored = await restore(embedded, bundle, uri)
        except Conflict as error:
            raise IntegrityMismatch(error.message, hint=error.hint) from None
    if as_json:
        print_json({"uri": uri, **msgspec.to_builtins(restored)})
        return OK
    click.echo(f"Restored execution {restored.execution_id}: {restored.written} events")
    if restored.present:
        click.echo(f"  {restored.present} were here already")
    if restored.executions > 1:
        click.echo(f"  {restored.executions} executions, those that it has called included")
    click.echo(f"  {restored.payloads} payloads")
    if restored.missing_payloads:
        note(
            f"  {restored.missing_payloads} payloads are not in the bundle: their results are read from the store "
            "they are in, if this home has it"
        )
    return OK
