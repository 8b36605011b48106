"""noetl lake: a copy of all events as Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from noetl.cli.counting import counted, size
from noetl.cli.exits import MISMATCH, OK
from noetl.cli.facts import facts
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, table
from noetl.units import format_duration, parse_duration, parse_size

if TYPE_CHECKING:
    from noetl.data.lake.checking import Verified
    from noetl.data.lake.log import Lake
    from noetl.data.lake.repairing import Repaired
    from noetl.data.lake.syncing import Synced
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])
_MOST_PROBLEMS = 20


@click.group("lake")
def command() -> None:
    """Keep a copy of all events as Parquet files, for questions about all of them.

    The lake is a copy: delete it, and noetl lake sync makes it again.
    """


command.add_command(facts)


def _lake(function: F) -> F:
    """`--path`, and what every command understands."""
    return click.option("--path", metavar="DIR", help="Where the lake is  [lake.path, or lake in the home]")(
        common(function)
    )


@command.command("sync", epilog="Example: noetl lake sync --follow")
@click.option("--follow", is_flag=True, help="Go on with what comes, until SIGTERM or an interrupt.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Files with a log of their own, or a table of Apache Iceberg, whose runtime Spark must have.",
)
@_lake
def sync(follow: bool, kind: str, path: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Copy the events that the lake does not have yet, of all tenants.

    Spark reads the ledger by position and writes the files. It may be killed at any moment and run twice at once:
    every position is in the lake once, and none is left out. With --follow, --json gives a line for each commit.
    """
    settings = settings_of(tenant)
    return run_async(_sync(home_of(home), settings, path, follow, kind == "iceberg", as_json))


async def _sync(home: Home, settings: Settings, path: str | None, follow: bool, iceberg: bool, as_json: bool) -> int:
    from noetl.cli.stopping import asked_to_stop
    from noetl.runtime.lake import lake_of, sync_lake

    lake, stop = lake_of(home, settings, path), asked_to_stop()
    with counted(quiet=as_json) as show:

        def tell(done: Synced) -> None:
            show(f"events in the lake, of {done.ledger}", done.head)
            if as_json and follow:
                print_json(_synced(lake, done))

        def begun() -> None:
            if not as_json:
                note(f"copying events to {lake.path}" + (", until it is stopped" if follow else ""))

        done = await sync_lake(home, settings, lake, follow=follow, iceberg=iceberg, stop=stop, tell=tell, begun=begun)
    if as_json and not follow:
        print_json(_synced(lake, done))
    elif not as_json:
        note(_summary(lake, done))
    return OK


def _synced(lake: Lake, done: Synced) -> dict[str, Any]:
    return {"path": str(lake.path), **msgspec.to_builtins(done)}


def _summary(lake: Lake, done: Synced) -> str:
    if not done.events:
        return f"{lake.path} has every event, up to position {done.head}"
    rate = done.events / done.seconds if done.seconds else 0
    files = f" and {done.files} files with {size(done.bytes)}" if done.files else ""
    return (
        f"{done.events} events in {done.commits} commits{files}, "
        f"{rate:.0f} events/s; the lake ends at position {done.head}"
    )


@command.command("status", epilog="Example: noetl lake status --json")
@_lake
def status(path: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show how far the lake is, and what it holds."""
    from noetl.data.lake.syncing import recognise
    from noetl.runtime.lake import lake_of, ledger_of

    settings, place = settings_of(tenant), home_of(home)
    lake = lake_of(place, settings, path)
    state = lake.snapshot()
    ledger = recognise(state, ledger_of(place, settings))
    tenants: Counter[str] = Counter()
    for file in state.files:
        tenants[file.tenant] += file.rows
    document = {
        "path": str(lake.path),
        "head": state.last_position,
        "ledger": ledger,
        "lag": ledger - state.last_position,
        "commits": state.commit,
        "committed_at": state.committed_at,
        "files": len(state.files),
        "bytes": sum(file.bytes for file in state.files),
        "tenants": dict(sorted(tenants.items())),
    }
    if as_json:
        print_json(document)
    else:
        _show_status(document)
    return OK


def _show_status(found: dict[str, Any]) -> None:
    click.secho(found["path"], bold=True)
    click.echo(f"  head       position {found['head']}, {found['lag']} behind the ledger")
    click.echo(f"  files      {found['files']} with {size(found['bytes'])}")
    click.echo(f"  commits    {found['commits']}, the last at {found['committed_at'] or '-'}")
    if found["tenants"]:
        table(None, ("tenant", "events"), found["tenants"].items())


@command.command("verify", epilog="Example: noetl lake verify --repair")
@click.option("--offline", is_flag=True, help="Do not ask the ledger: checksums and chains alone.")
@click.option("--repair", is_flag=True, help="Make files that are damaged or gone again from the ledger.")
@_lake
def verify(
    offline: bool, repair: bool, path: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Prove that every position is in the lake once, and every event as it is in the ledger.

    Reads every file: its digest, each event's checksum, the chains of its streams, and the ledger's checksums. Exit
    code 4 names what does not hold.
    """
    from noetl.data.lake.checking import verify as verify_lake
    from noetl.data.lake.repairing import repair as repair_files
    from noetl.runtime.lake import lake_of, ledger_of

    if offline and repair:
        raise click.UsageError("--repair needs the ledger: leave --offline out")
    settings, place = settings_of(tenant), home_of(home)
    lake, spec = lake_of(place, settings, path), ledger_of(place, settings)
    with counted(quiet=as_json) as show:
        found = verify_lake(lake, None if offline else spec, tell=show)
        done = repair_files(lake, spec, found.damaged) if repair and found.damaged else []
        if any(one.instead is not None for one in done):
            found = verify_lake(lake, spec, tell=show)
    if as_json:
        document = msgspec.to_builtins(found)
        del document["damaged"]
        print_json({"path": str(lake.path), "ok": found.ok, **document, "repaired": msgspec.to_builtins(done)})
    else:
        _show_verified(lake, found, done)
    return OK if found.ok else MISMATCH


def _show_verified(lake: Lake, found: Verified, done: list[Repaired]) -> None:
    for one in done:
        text = f"{one.file}: made again as {one.instead}" if one.instead else f"{one.file}: left, {one.why_not}"
        click.echo(readable(text))
    for problem in found.problems[:_MOST_PROBLEMS]:
        click.secho(f"    {readable(problem.what)}", fg="red")
    if len(found.problems) > _MOST_PROBLEMS:
        click.echo(f"    and more: {len(found.problems) - _MOST_PROBLEMS}, all with --json")
    mark = click.style("ok", fg="green") if found.ok else click.style("MISMATCH", fg="red", bold=True)
    against = "by itself" if found.ledger is None else f"against a ledger of {found.ledger}"
    click.echo(f"{mark}  {lake.path}  {found.rows} events in {found.files} files, {against}")
    if found.unproven:
        note(f"    {found.unproven} events have fields of a later release, which cannot be proven here")


@command.command("compact", epilog="Example: noetl lake compact --target 128MiB")
@click.option("--target", metavar="SIZE", default="64MiB", show_default=True, help="How large a file may become.")
@_lake
def compact(target: str, path: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Put small files together. Whoever reads sees the old files or the new ones, and the old ones stay for a while."""
    from noetl.data.lake.compacting import compact as compact_lake
    from noetl.runtime.lake import lake_of

    settings = settings_of(tenant)
    lake = lake_of(home_of(home), settings, path)
    with counted(quiet=as_json) as show:
        done = compact_lake(lake, target=parse_size(target), tell=show)
    if as_json:
        print_json({"path": str(lake.path), **msgspec.to_builtins(done)})
    elif done.commits:
        note(f"{done.before} files became {done.after}; noetl lake vacuum deletes the old ones")
    else:
        note("there is nothing to put together")
    return OK


@command.command("vacuum", epilog="Example: noetl lake vacuum --delete")
@click.option("--delete", is_flag=True, help="Delete them. Without this they are only counted.")
@click.option("--grace", metavar="TIME", help="How long ago they must have been replaced  [lake.grace]")
@_lake
def vacuum(
    delete: bool, grace: str | None, path: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Find files that are no part of the lake any more: replaced, or left behind by a sync that was killed."""
    from noetl.data.lake.compacting import vacuum as vacuum_lake
    from noetl.runtime.lake import lake_of

    settings = settings_of(tenant)
    lake = lake_of(home_of(home), settings, path)
    seconds = settings.lake.grace if grace is None else parse_duration(grace)
    done = vacuum_lake(lake, grace=seconds, delete=delete)
    if as_json:
        print_json({"path": str(lake.path), "deleted": delete, **msgspec.to_builtins(done)})
        return OK
    note(f"{done.removed} files with {size(done.bytes)} {'were deleted' if delete else 'can be deleted'}")
    if done.young:
        note(f"{done.young} more are left, because that was less than {format_duration(seconds)} ago")
    return OK
