"""noetl replay: the state as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.cutoffs import cutoff_of
from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import common, execution_id_of, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, table

if TYPE_CHECKING:
    from noetl.data.bulk.replaying import Origin
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


_OF_ONE = ("at_event", "at_position", "at_time", "resolve_payloads", "degraded", "no_snapshots")
_OF_ALL = ("as_of", "source", "out", "no_states")
_SPELLED = {"source": "from"}


@click.command(epilog="Example: noetl replay 318485246779594112 --at-time 2026-05-16T14:00:00Z")
@click.argument("execution", metavar="[ID]", required=False)
@click.option(
    "--from-archive", metavar="URI", help="From this bundle, with no ledger; ID is then one of its executions."
)
@click.option("--trusted", metavar="KEY", help="With it: the public key that must have signed the bundle.")
@click.option("--at-event", metavar="EVENT", help="As of this event, inclusive.")
@click.option("--at-position", type=int, metavar="N", help="As of this position of the ledger, inclusive.")
@click.option("--at-time", metavar="TIME", help="As of this moment (ISO 8601; UTC unless it says otherwise).")
@click.option("--resolve-payloads", is_flag=True, help="Read every payload through and check its digest.")
@click.option("--degraded", is_flag=True, help="With it: exit 0 also if payloads are missing, and only report them.")
@click.option("--no-snapshots", is_flag=True, help="Fold from the first event on.")
@click.option("--all", "all_", is_flag=True, help="Every execution, in Spark, into a directory.")
@click.option("--as-of", metavar="MOMENT", help="With --all: as of a position of the ledger, or a time.")
@click.option(
    "--from",
    "source",
    type=click.Choice(["lake", "ledger", "archive"]),
    help="With --all: from where; the lake, if there is one.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="With --all: the directory to make.")
@click.option("--no-states", is_flag=True, help="With --all: only checksums, not the rows that they are of.")
@common
def command(
    execution: str | None,
    from_archive: str | None,
    trusted: str | None,
    at_event: str | None,
    at_position: int | None,
    at_time: str | None,
    resolve_payloads: bool,
    degraded: bool,
    no_snapshots: bool,
    all_: bool,
    as_of: str | None,
    source: Origin | None,
    out: Path | None,
    no_states: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Rebuild the state of an execution from its log, as of a moment, with the checksums that prove it.

    With --all, the states of every execution and every other root, as of one moment, in parallel.
    """
    _check_usage(execution, from_archive, all_, out)
    if all_:
        from noetl.cli.bulk import replay_everything

        assert out is not None
        return run_async(replay_everything(out.absolute(), source, as_of, not no_states, home, tenant, as_json))
    if degraded and not resolve_payloads:
        raise click.UsageError("--degraded says what to do about payloads: give --resolve-payloads too")
    cutoff = cutoff_of(at_event, at_position, at_time)
    if from_archive is not None:
        if resolve_payloads or no_snapshots:
            raise click.UsageError("--resolve-payloads and --no-snapshots are for a ledger, not for a bundle")
        return run_async(_replay_bundle(from_archive, trusted, execution, cutoff, as_json))
    if trusted is not None:
        raise click.UsageError("--trusted goes with --from-archive")
    assert execution is not None
    payloads = "degraded" if degraded else "resolved" if resolve_payloads else "left"
    return run_async(_replay(execution, cutoff, payloads, not no_snapshots, home, tenant, as_json))


def _check_usage(execution: str | None, from_archive: str | None, all_: bool, out: Path | None) -> None:
    """Options of one are of no use to the other; those that would be overlooked are refused."""
    is_of_one = execution is not None or from_archive is not None
    if all_ == is_of_one:
        raise click.UsageError("name an execution, or ask for --all")
    given = click.get_current_context().params
    mine = _OF_ALL if is_of_one else _OF_ONE
    for name in [name for name in mine if given.get(name)]:
        whose = "--all" if is_of_one else "one execution"
        raise click.UsageError(f"--{_SPELLED.get(name, name.replace('_', '-'))} is for {whose}")
    if all_ and out is None:
        raise click.UsageError("--all needs --out, a directory that it makes")


async def _replay(
    execution: str,
    cutoff: Cutoff,
    payloads: str,
    snapshots: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        root = await find_root(embedded, execution, settings)
        replayed = await embedded.replayer.replay(
            root,
            cutoff,
            snapshots=snapshots,
            resolve_payloads=None if payloads == "left" else _MOST_SUMMARIES,
            degraded=payloads == "degraded",
        )
    if as_json:
        from noetl.replay.document import document_of

        print_json(document_of(replayed))
    else:
        _show(replayed)
    return OK if payloads == "degraded" or _is_whole(replayed) else MISMATCH


async def _replay_bundle(uri: str, trusted: str | None, execution: str | None, cutoff: Cutoff, as_json: bool) -> int:
    from noetl.archive.bundle.replaying import replay_bundle
    from noetl.cli.commands.archive import open_at
    from noetl.kernel.upcast import default_registry

    wanted = None if execution is None else execution_id_of(execution)
    replayed = await replay_bundle(await open_at(uri, trusted), default_registry(), cutoff, wanted)
    if as_json:
        from noetl.replay.document import document_of

        print_json(document_of(replayed))
    else:
        _show(replayed)
    return OK


def _is_whole(replayed: Replayed) -> bool:
    """Whether every payload is there as its reference says, as far as anybody has looked."""
    if replayed.payloads is None or not replayed.payloads.missing_or_damaged:
        return True
    note(
        "a payload that is not there makes the replay incomplete: noetl repair may restore it, --degraded goes without"
    )
    return False


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
        for summary in report.summaries:
            if summary.error is not None:
                click.echo(f"             {readable(summary.uri)}: {summary.error}")


def _origin(replayed: Replayed) -> str:
    if replayed.snapshot is not None:
        return f"after the snapshot at position {replayed.snapshot.position}"
    return f"from the first on, without a snapshot: {replayed.no_snapshot}"
