"""noetl result: what an execution, or one of its steps, has left behind."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import click
import msgspec

from noetl.cli.options import common, execution_id_of, home_of, run_async, settings_of
from noetl.cli.output import print_json
from noetl.cli.remote import context_option, result_on, target_of
from noetl.errors import NotFound
from noetl.kernel import canonical

__all__ = ["command"]


@click.command(epilog="Example: noetl result 318485246779594112 load")
@click.argument("execution", metavar="ID")
@click.argument("step", required=False)
@context_option
@common
def command(
    execution: str, step: str | None, context: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Show the result of an execution, or of one of its steps."""
    if (target := target_of(context, home)) is not None:
        return result_on(target, execution, step, as_json)
    return run_async(_result(execution_id_of(execution), step, home, tenant, as_json))


async def _result(execution_id: int, step: str | None, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.embedded.runner import driver_of, result_of
    from noetl.runtime.origin import origin_of
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        found = await driver_of(embedded, origin_of(settings)).execution(execution_id)
    name = step or found.control.last_step
    if name is None or name not in found.control.steps or found.control.steps[name].state != "ended":
        ended = ", ".join(sorted(other for other, state in found.control.steps.items() if state.state == "ended"))
        raise NotFound(f"execution {execution_id} has no result of step '{name}'", hint=f"steps that ended: {ended}")
    value = result_of(found, name)
    if as_json:
        print_json(_document(execution_id, name, value))
    else:
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _document(execution_id: int, step: str, value: Any) -> dict[str, Any]:
    data = canonical.encode(value)
    rows = value.get("rows") if isinstance(value, dict) else None
    return {
        "execution_id": str(execution_id),
        "step": step,
        "value": value,
        "rows": len(rows) if isinstance(rows, list) else None,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
