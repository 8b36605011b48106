"""Replay and verification of everything, in Spark: what the commands `replay --all` and `verify --all --spark` do."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from noetl.cli.counting import counted
from noetl.cli.cutoffs import moment_of
from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import home_of, settings_of
from noetl.cli.output import note, print_json, readable, table
from noetl.errors import InvalidInput, NoetlError, NotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from noetl.data.bulk import Bounds
    from noetl.data.bulk.replaying import Origin, Plan, Summary
    from noetl.data.lake.log import Lake
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["lake_of", "replay_everything", "run_in_spark"]

T = TypeVar("T")
_LOOK_SECONDS = 0.3
_MOST_ERRORS = 10


def lake_of(home: Home) -> Lake:
    """The lake of an installation."""
    from noetl.data.lake.log import Lake

    return Lake(home.path / "lake")


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

    settings, at = settings_of(), home_of(home)
    bounds = _bounds(as_of)
    check_new(out)
    chosen = source or ("lake" if lake_of(at).exists() else "ledger")

    def work(session: SparkSession) -> Summary:
        plan = _plan(session, chosen, at, settings, tenant)
        return replay_all(out, chosen, bounds, plan=plan, tenant=tenant, states=states)

    found = await run_in_spark(at, settings, work, "replay of everything", quiet=as_json)
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


def _plan(session: SparkSession, source: Origin, home: Home, settings: Settings, tenant: str | None) -> Plan:
    from noetl.data.bulk.job import plan_lake, plan_ledger

    if source == "lake":
        lake = lake_of(home)
        if not lake.exists():
            raise NotFound(f"there is no lake at {lake.path}", hint="make one with noetl lake sync, or --from ledger")
        return plan_lake(session, lake.path, tenant)
    return plan_ledger(session, _registered(session, home, settings), tenant)


def _registered(session: SparkSession, home: Home, settings: Settings) -> int:
    """Let the session read the ledger of an installation. The position at which it ends."""
    from noetl.data.source import register
    from noetl.data.source.log import LogSpec, open_log, url_of_home

    with open_log(LogSpec(url_of_home(home.path), settings.ledger.busy_timeout)) as log:
        head = log.head()
    register(session, home.path)
    return head


async def run_in_spark(
    home: Home, settings: Settings, work: Callable[[SparkSession], T], description: str, *, quiet: bool
) -> T:
    """Do something with a session of this process, or the warm one of the home. An interrupt stops its jobs."""
    from noetl.data.session import SparkSessions, explain, run_job, session_conf
    from noetl.data.session.jobs import is_classic

    sessions = SparkSessions.shared(home.path)
    session = await sessions.get(session_conf(settings.spark))
    try:
        if not is_classic(session):
            raise InvalidInput(
                f"a {description} does not work over Spark Connect", hint="unset spark.remote for this command"
            )
        async with _watched(session, quiet):
            return await run_job(session, "noetl-bulk", lambda: work(session), description=description)
    except NoetlError:
        raise
    except Exception as error:
        raise NoetlError(f"Spark could not do it: {explain(error).message}") from error
    finally:
        await sessions.release(session)


@contextlib.asynccontextmanager
async def _watched(session: SparkSession, quiet: bool) -> AsyncIterator[None]:
    """How many tasks have ended, on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from noetl.data.bulk.job import tasks_done

    async def look() -> None:
        with counted() as show:
            while True:
                done, of = await asyncio.to_thread(tasks_done, session)
                show(f"tasks done of {of}", done)
                await asyncio.sleep(_LOOK_SECONDS)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def _show(found: Summary, out: Path) -> None:
    moment: Any = found.until or f"position {found.position}"
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
