"""Replay and verification of everything, in Spark: what the commands `replay --all` and `verify --all --spark` do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from noetl.cli.counting import counted
from noetl.cli.cutoffs import moment_of
from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import home_of, settings_of
from noetl.cli.output import note, print_json, readable, table, with_text_ids
from noetl.errors import InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from noetl.data.bulk import Bounds
    from noetl.data.bulk.checks import Checked
    from noetl.data.bulk.examining import Standing
    from noetl.data.bulk.replaying import Origin, Plan, Summary
    from noetl.data.bulk.verifying import Report
    from noetl.data.lake.log import Lake
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["note_lag", "replay_everything", "verify_everything"]

T = TypeVar("T")
_MOST_ERRORS = 10
_WIDTH = 200


async def replay_everything(
    out: Path,
    source: Origin | None,
    as_of: str | None,
    states: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    """Fold every execution into a new directory, and say what it has come to."""
    from noetl.data.bulk.directory import check_new
    from noetl.data.bulk.replaying import replay_all
    from noetl.runtime.lake import lake_of

    settings, at = settings_of(), home_of(home)
    bounds = _bounds(as_of)
    check_new(out)
    chosen = source or ("lake" if lake_of(at, settings).exists() else "ledger")

    bundles = await _bundles(at, settings, tenant) if chosen == "archive" else ("", [])
    if chosen == "lake" and bounds.position is None:
        await note_lag(_existing(at, settings), at, settings)

    def work(session: Any) -> Summary:
        plan = _plan(session, chosen, at, settings, tenant, bundles)
        return replay_all(out, chosen, bounds, plan=plan, tenant=tenant, states=states)

    found = await _in_spark(at, settings, work, "replay of everything", quiet=as_json)
    if as_json:
        print_json({"directory": str(out), **msgspec.to_builtins(found)})
    else:
        _show(found, out)
    return MISMATCH if found.failed else OK


def _bounds(as_of: str | None) -> Bounds:
    """Raises InvalidInput for a moment that has not been yet: a log can only be asked about the past."""
    from noetl.data.bulk import Bounds
    from noetl.kernel.time import format_time
    from noetl.runtime.clock import SystemClock

    if as_of is None:
        return Bounds()
    cutoff = moment_of(as_of)
    now = SystemClock().now()
    if cutoff.time is not None and cutoff.time > now:
        raise InvalidInput(
            f"{format_time(cutoff.time)} is in the future (it is {format_time(now)})",
            hint="a log can only be asked about the past",
        )
    return Bounds.of(cutoff)


async def note_lag(lake: Lake, home: Home, settings: Settings) -> None:
    """Say what a lake does not have yet. One without its ledger is as good as any; one of another ledger is refused."""
    from noetl.data.lake.syncing import recognise
    from noetl.runtime.lake import ledger_of

    state = lake.snapshot()
    try:
        head = await asyncio.to_thread(recognise, state, ledger_of(home, settings))
    except (NotFound, Unavailable):
        return
    if behind := head - state.last_position:
        note(f"the lake is {behind} events behind the ledger: noetl lake sync brings them")


async def _bundles(home: Home, settings: Settings, tenant: str | None) -> tuple[str, list[str]]:
    """The address of the installation's archive, and the prefixes of what is in it."""
    from noetl.data.bulk.archived import find_bundles
    from noetl.runtime.archiving.places import open_place

    place = await open_place(home, settings)
    found = await find_bundles(place.objects, tenant=tenant)
    if not found:
        raise NotFound(f"nothing is archived at {place.url}", hint="noetl archive --all archives what has ended")
    return place.url, found


def _plan(
    session: Any,
    source: Origin,
    home: Home,
    settings: Settings,
    tenant: str | None,
    bundles: tuple[str, list[str]],
) -> Plan:
    from noetl.data.bulk.job import plan_archive, plan_lake, plan_ledger
    from noetl.data.source import place_here

    if source == "archive":
        return plan_archive(session, place_here(os.environ, Path.cwd(), home.path), *bundles)
    if source == "lake":
        return plan_lake(session, _existing(home, settings).path, tenant)
    return plan_ledger(session, _registered(session, home, settings), tenant)


def _existing(home: Home, settings: Settings) -> Lake:
    from noetl.runtime.lake import lake_of

    lake = lake_of(home, settings)
    if not lake.exists():
        raise NotFound(f"there is no lake at {lake.path}", hint="make one with noetl lake sync")
    return lake


def _registered(session: Any, home: Home, settings: Settings) -> int:
    """Let the session read the ledger of an installation. The position at which it ends."""
    from noetl.data.source import register
    from noetl.data.source.log import open_log
    from noetl.runtime.lake import ledger_of

    with open_log(ledger_of(home, settings)) as log:
        head = log.head()
    register(session, home.path, ledger=settings.ledger.url)
    return head


async def verify_everything(home: Path | None, tenant: str | None, as_json: bool) -> int:
    """Examine all roots of the lake in parallel, and say what does not hold."""
    from noetl.data.bulk import job
    from noetl.data.bulk.verifying import verify_all
    from noetl.data.lake.syncing import recognise
    from noetl.data.source import place_here
    from noetl.runtime.lake import ledger_of
    from noetl.runtime.projector import PROJECTOR
    from noetl.runtime.wiring import open_embedded

    settings, at = settings_of(), home_of(home)
    lake = _existing(at, settings)
    await asyncio.to_thread(recognise, lake.snapshot(), ledger_of(at, settings))
    place = place_here(os.environ, Path.cwd(), at.path)

    async def run(standing: Standing) -> list[Checked]:
        def work(session: Any) -> list[Checked]:
            return job.check(session, lake.path, place, standing, ledger=settings.ledger.url, tenant=tenant)

        return await _in_spark(at, settings, work, "verification of everything", quiet=as_json)

    async with open_embedded(at, settings, examine=True, table=True) as embedded:
        report = await verify_all(
            embedded.ledger,
            embedded.projections,
            embedded.verifier,
            PROJECTOR,
            lake.head(),
            run,
            outbox=embedded.outbox,
            is_whole=tenant is None,
        )
    if as_json:
        print_json(with_text_ids(msgspec.to_builtins(report)))
    else:
        _show_report(report)
    return OK if report.ok else MISMATCH


async def _in_spark(home: Home, settings: Settings, work: Callable[[Any], T], description: str, *, quiet: bool) -> T:
    from noetl.data.bulk.running import run_in_spark

    with counted(quiet=quiet) as show:

        def tell(done: int, of: int) -> None:
            show(f"{description}, tasks done of {of}", done)

        return await run_in_spark(home.path.absolute(), settings.spark, work, description, tell)


def _show(found: Summary, out: Path) -> None:
    moment = found.until or ("now" if found.position is None else f"position {found.position}")
    table(None, ("status", "roots"), list(found.statuses.items()), right=("roots",))
    click.echo(f"{found.roots} roots of {found.events} events as of {moment}, from the {found.source}")
    click.echo(f"{found.seconds:.1f} s, {found.events_per_second:,.0f} events/s")
    click.echo(f"checksum {found.checksum}")
    for error in found.errors[:_MOST_ERRORS]:
        click.secho(f"cannot be folded: {readable(error)}", fg="red")
    if found.failed > _MOST_ERRORS:
        click.echo(f"and {found.failed - _MOST_ERRORS} more: see column error of {out}/bundles")
    note(f"bundles{', states' if any(file.path.startswith('states') for file in found.files) else ''} "
         f"and a summary are in {out}")  # fmt: skip


def _show_report(report: Report) -> None:
    mark = click.style("ok", fg="green") if report.ok else click.style("MISMATCH", fg="red", bold=True)
    click.echo(f"{mark}  {report.roots} roots, {report.streams} streams, {report.events} events up to position "
               f"{report.position}, {'keyed' if report.keyed else 'unkeyed'}")  # fmt: skip
    for problem in report.problems:
        click.secho(f"    {readable(problem.what)}", fg="red")
    for finding in report.findings[:_MOST_ERRORS]:
        click.secho(f"{finding.stream_id} of tenant {finding.tenant_id}", fg="red", bold=True)
        for what in [*(problem.what for problem in finding.problems), *finding.differences][:_MOST_ERRORS]:
            click.secho(f"    {readable(what, _WIDTH)}", fg="red")
    if report.mismatches > _MOST_ERRORS:
        click.echo(f"and {report.mismatches - _MOST_ERRORS} roots more; --json names the first hundred")
    click.echo(f"{report.mismatches} with a mismatch, {report.seconds:.1f} s, {report.events_per_second:,.0f} events/s")
    if report.behind:
        note(f"{report.behind} roots have events after the end of the lake and were not compared: run noetl lake sync")
    if not report.keyed:
        note("the wallet's key is not here: a well-made forgery would not be seen")
