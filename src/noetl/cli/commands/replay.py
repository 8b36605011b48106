"""noetl replay: the state as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.cutoffs import cutoff_of
from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, table

if TYPE_CHECKING:
    from noetl.replay.service import Cutoff, Replayed

__all__ = ["command"]

_MOST_ROWS = 20
_MOST_SUMMARIES = 100
_COLUMNS = {
    "stages": ("stage_id", "step", "kind", "status", "committed", "abandoned", "rows"),
    "frames": ("frame_id", "slot", "frame_index", "status", "attempts", "row_count", "owner_worker"),
    "commands": ("command_id", "step", "kind", "status", "claims", "worker_id"),
    "business_objects": ("object_id", "status", "version", "event_count"),
    "loops": ("loop_id", "status", "total", "success", "failed"),
}


@click.command(epilog="Example: noetl replay 318485246779594112 --at-time 2026-05-16T14:00:00Z")
@click.argument("execution", metavar="ID")
@click.option("--at-event", metavar="EVENT", help="As of this event, inclusive.")
@click.option("--at-position", type=int, metavar="N", help="As of this position of the ledger, inclusive.")
@click.option("--at-time", metavar="TIME", help="As of this moment (ISO 8601; UTC unless it says otherwise).")
@click.option("--resolve-payloads", is_flag=True, help="Read every payload through and check its digest.")
@click.option("--no-snapshots", is_flag=True, help="Fold from the first event on.")
@common
def command(
    execution: str,
    at_event: str | None,
    at_position: int | None,
    at_time: str | None,
    resolve_payloads: bool,
    no_snapshots: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Rebuild the state of an execution from its log, as of a moment, with the checksums that prove it."""
    cutoff = cutoff_of(at_event, at_position, at_time)
    return run_async(_replay(execution, cutoff, resolve_payloads, not no_snapshots, home, tenant, as_json))


async def _replay(
    execution: str,
    cutoff: Cutoff,
    resolve_payloads: bool,
    snapshots: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        root = await find_root(embedded, execution, settings)
        replayed = await embedded.replayer.replay(
            root, cutoff, snapshots=snapshots, resolve_payloads=_MOST_SUMMARIES if resolve_payloads else None
        )
    if as_json:
        from noetl.replay.document import document_of

        print_json(document_of(replayed))
    else:
        _show(replayed)


def _show(replayed: Replayed) -> None:
    state = replayed.state
    root = state.root
    status = readable(root.status)
    click.secho(f"{replayed.root.stream_id}  {readable(getattr(root, 'path', None) or '')}", bold=True)
    click.echo(f"  status     {click.style(status, fg='green' if status == 'COMPLETED' else None)}")
    click.echo(f"  events     {root.event_count} up to event {root.last_event_id}, position {replayed.position}")
    click.echo(f"  folded     {replayed.events_folded} events {_origin(replayed)}")
    for rejected in replayed.rejected:
        note(f"  snapshot at position {rejected.position} was not used: {rejected.reason}")
    for name, columns in _COLUMNS.items():
        if name in state.surfaces and state.surfaces[name].rows:
            rows = [row.as_dict() for _, row in state.rows(name)]
            more = f" (first {_MOST_ROWS} of {len(rows)})" if len(rows) > _MOST_ROWS else ""
            table(name + more, columns, [[row.get(column) for column in columns] for row in rows[:_MOST_ROWS]])
    counts = {name: len(surface.rows) for name, surface in state.surfaces.items()}
    table(
        "checksums",
        ("surface", "rows", "sha256"),
        [(name, counts[name], total[:16]) for name, total in replayed.bundle().items()],
    )
    click.echo(f"  state      {replayed.checksum()}")
    if replayed.payloads is not None:
        report = replayed.payloads
        click.echo(f"  payloads   {report.payloads} read, {report.missing_or_damaged} missing or damaged")


def _origin(replayed: Replayed) -> str:
    return f"after the snapshot at position {replayed.snapshot.position}" if replayed.snapshot else "from the first on"
