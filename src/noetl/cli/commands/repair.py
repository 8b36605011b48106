"""noetl repair: what is missing or damaged is brought back, or reported lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.counting import counted, size
from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, table
from noetl.errors import InvalidInput
from noetl.kernel.plain import with_text_ids

if TYPE_CHECKING:
    from noetl.runtime.repair.repairer import Finding
    from noetl.runtime.repair.service import Repair, Request

__all__ = ["command"]


@click.command(epilog="Example: noetl repair --all --dry-run")
@click.argument("execution", metavar="ID", required=False)
@click.option("--all", "all_", is_flag=True, help="Everything in the ledger.")
@click.option("--dry-run", is_flag=True, help="Look and say what could be done; change nothing.")
@click.option("--spark", is_flag=True, help="With --all: have Spark read the objects, for millions of them.")
@click.option("--rerun", is_flag=True, help="Run tasks with side_effecting: false again for a result that is lost.")
@common
def command(
    execution: str | None,
    all_: bool,
    dry_run: bool,
    spark: bool,
    rerun: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Read every stored object that the log refers to, and bring back what is missing or damaged.

    Bytes come from copies on this machine, from the store at payloads.replica, from archives, from the catalog, from
    the results of iterations and, with --rerun, from tasks without effects; they are taken only if their sha256 is the
    one in the log. Rows and snapshots that differ from the log are rebuilt from it. Exit code 4 if anything is lost.
    """
    from noetl.runtime.repair.service import Request

    if all_ == (execution is not None):
        raise InvalidInput("name an execution, or ask for --all", hint="noetl repair ID, or noetl repair --all")
    if spark and not all_:
        raise InvalidInput("--spark is for the whole ledger", hint="noetl repair --all --spark")
    request = Request(dry_run=dry_run, spark=spark, rerun=rerun, directory=Path.cwd())
    return run_async(_repair(execution, request, home, tenant, as_json))


async def _repair(execution: str | None, request: Request, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.repair.service import repair
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    async with open_embedded(place, settings) as embedded:
        if execution is not None:
            root = await find_root(embedded, execution, settings)
            request = msgspec.structs.replace(request, root=root)
        with counted(quiet=as_json) as progress:
            found = await repair(embedded, place, request, progress)
    if as_json:
        print_json(_document(found, request.dry_run))
    else:
        _show(found, request.rerun)
    return OK if found.is_sound else MISMATCH


def _document(found: Repair, dry_run: bool) -> dict[str, Any]:
    document = {
        "ok": found.is_sound,
        "dry_run": dry_run,
        "objects": found.objects.objects,
        "bytes": found.objects.bytes,
        "repaired": msgspec.to_builtins(found.objects.having("repaired")),
        "repairable": msgspec.to_builtins(found.objects.having("repairable")),
        "lost": msgspec.to_builtins(found.lost),
        "rows": msgspec.to_builtins(found.rows),
    }
    return with_text_ids(document)  # type: ignore[no-any-return]  # a mapping stays a mapping


def _show(found: Repair, rerun: bool) -> None:
    report = found.objects
    if report.findings:
        rows = [
            (one.outcome, one.condition, one.execution_id, one.step, one.row, one.attempt, size(one.bytes), one.source)
            for one in report.findings
        ]
        table(None, ("outcome", "was", "execution", "step", "row", "attempt", "bytes", "from"), rows)
    for one in found.lost:
        _show_lost(one)
    for reports in found.rows:
        _say_rows(reports.stream_id, reports.rows, reports.snapshots, reports.problems)
    counts = {name: len(report.having(name)) for name in ("repaired", "repairable", "lost")}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "all sound"
    click.echo(f"{report.objects} objects, {said}")
    if found.lost and not rerun:
        note("with --rerun, tasks with side_effecting: false are run again")


def _show_lost(one: Finding) -> None:
    click.secho("lost  ", fg="red", bold=True, nl=False)
    click.echo(readable(one.uri))
    click.echo(f"      object {readable(one.key)}")
    click.echo(f"      sha256 {one.sha256}, event {one.event_id} ({one.event_type})")
    for said in one.tried:
        click.echo(f"      {readable(said)}")


def _say_rows(stream_id: str, rows: int, snapshots: int, problems: list[str]) -> None:
    for count, name in ((rows, "rows"), (snapshots, "snapshots")):
        if count:
            click.echo(f"{stream_id}: {count} {name} differed from the log")
    for problem in problems:
        click.secho(f"{stream_id}: {readable(problem)}", fg="red")
