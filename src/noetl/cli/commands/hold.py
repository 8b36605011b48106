"""noetl hold: executions that stay in the ledger, whatever their age."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table

__all__ = ["command"]


@click.group("hold")
def command() -> None:
    """Keep executions in the ledger: legal holds, recorded with who placed them, when and why."""


_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded for good.")


@command.command("add", epilog='Example: noetl hold add 287056488038428672 --reason "case 4711"')
@click.argument("execution", metavar="ID")
@_reason
@common
def add(execution: str, reason: str, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Keep an execution, and all that it has called or that called it, in the ledger until the hold is removed."""
    return run_async(_add(execution, reason, home, tenant, as_json))


@command.command("remove", epilog='Example: noetl hold remove 287056488038428672 --reason "the case is closed"')
@click.argument("execution", metavar="ID")
@_reason
@common
def remove(execution: str, reason: str, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Let an execution go again. That it was held stays in the log."""
    return run_async(_remove(execution, reason, home, tenant, as_json))


@command.command("list", epilog="Example: noetl hold list --json")
@common
def list_(home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show the holds that stand. Those that were removed are in the log: noetl events tenant/ID."""
    return run_async(_list(home, tenant, as_json))


async def _add(execution: str, reason: str, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.holds import Holds
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        root = await find_root(embedded, execution, settings)
        held = await Holds(embedded, settings).place(root, reason)
        archived = await embedded.ledger.forgotten(root=root)
        await embedded.projector.catch_up(snapshots=False)
    if as_json:
        print_json({**_plain(held), "archived": archived[0].uri if archived else None})
        return
    note(f"execution {held.execution_id} is held by {held.principal}")
    if archived:
        note(f"its events had left the ledger before: keep {archived[0].uri}")


async def _remove(execution: str, reason: str, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.holds import Holds
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        root = await find_root(embedded, execution, settings)
        await Holds(embedded, settings).release(root, reason)
        await embedded.projector.catch_up(snapshots=False)
    number = root.stream_id.partition("/")[2]
    if as_json:
        print_json({"execution_id": number, "held": False})
    else:
        note(f"execution {number} is not held any more")


async def _list(home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.holds import Holds
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        found = await Holds(embedded, settings).list(settings.tenant.id)
    if as_json:
        print_json({"holds": [_plain(one) for one in found]})
    elif found:
        table(
            None,
            ("execution_id", "placed_at", "by", "reason"),
            [(one.execution_id, one.placed_at[:19], one.principal, one.reason) for one in found],
        )
    else:
        note("nothing is held")


def _plain(held: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(held)
    return plain
