"""noetl retention: what may leave the ledger, and what stays and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.counting import size
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table
from noetl.units import format_duration, parse_duration

if TYPE_CHECKING:
    from noetl.ports.forgetting import Forgotten
    from noetl.runtime.home import Home
    from noetl.runtime.judging import Verdict
    from noetl.settings import Settings

__all__ = ["command"]

_MOST_SHOWN = 50


@click.command("retention", epilog="Example: noetl retention, and when you agree: noetl retention --apply")
@click.option("--apply", "apply_", is_flag=True, help="Take out what may go. Without this it is only shown.")
@click.option("--dry-run", is_flag=True, help="Only show what may go, which is the default.")
@click.option("--min-age", metavar="TIME", help="How old the last event must be, such as 90d  [retention.min_age]")
@common
def command(
    apply_: bool, dry_run: bool, min_age: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Take the events of archived executions out of the ledger, when nothing needs them there any more.

    An execution goes, with all that it has called, if it has ended and is old enough, if its archive is read through
    and found to have exactly its events, if projectors and the event lake have seen them, if nothing that runs goes
    back to it, and if no hold is on it. What it was can still be shown, replayed and verified: that is read from the
    archive, and noetl restore brings it back. With --tenant only this tenant's executions are looked at.
    """
    if apply_ and dry_run:
        raise click.UsageError("--dry-run takes nothing out, --apply does: use one of them")
    settings = settings_of(tenant)
    age = settings.retention.min_age if min_age is None else parse_duration(min_age)
    return run_async(_sweep(home_of(home), settings, age, tenant, apply_, as_json))


async def _sweep(home: Home, settings: Settings, age: float, tenant: str | None, apply: bool, as_json: bool) -> None:
    from noetl.runtime.forgetting import open_retention
    from noetl.runtime.wiring import open_embedded

    found: list[tuple[Verdict, list[Forgotten]]] = []
    async with open_embedded(home, settings) as embedded:
        await embedded.projector.catch_up(snapshots=False)
        retention = open_retention(embedded, settings, min_age=age)
        found += [one async for one in retention.sweep(apply=apply, tenant_id=tenant)]
    if as_json:
        print_json(_document(found, age, apply))
    else:
        _show(found, age, apply)


def _document(found: list[tuple[Verdict, list[Forgotten]]], age: float, apply: bool) -> dict[str, Any]:
    return {
        "applied": apply,
        "min_age_seconds": age,
        "gone": {
            "executions": sum(len(gone) for _, gone in found),
            "events": sum(one.events for _, gone in found for one in gone),
            "bytes": sum(one.size for _, gone in found for one in gone),
        },
        "executions": [
            {
                "execution_id": verdict.root.stream_id.partition("/")[2],
                "tenant_id": verdict.root.tenant_id,
                "executions": verdict.executions,
                "events": verdict.events,
                "ended_at": verdict.ended_at,
                "archive": verdict.uri,
                "may_go": verdict.may_go,
                "gone": bool(gone),
                "reason": verdict.reason,
                "detail": verdict.detail,
            }
            for verdict, gone in found
        ],
    }


def _show(found: list[tuple[Verdict, list[Forgotten]]], age: float, apply: bool) -> None:
    from noetl.runtime.judging import REASONS

    free = [verdict for verdict, _ in found if verdict.may_go]
    kept = [verdict for verdict, _ in found if not verdict.may_go]
    if free:
        rows = [(_name(one), one.executions - 1, one.events, (one.ended_at or "")[:19]) for one in free]
        table("gone" if apply else "may go", ("execution_id", "called", "events", "ended_at"), rows[:_MOST_SHOWN])
    if kept:
        told = [(_name(one), one.events, REASONS.get(one.reason or "", one.reason), one.detail or "") for one in kept]
        table("stays", ("execution_id", "events", "why", "detail"), told[:_MOST_SHOWN])
    if len(free) > _MOST_SHOWN or len(kept) > _MOST_SHOWN:
        click.echo("and more: all with --json")
    click.echo(f"{len(free)} {'are gone' if apply else 'may go'}, {len(kept)} stay (older than {format_duration(age)})")
    if apply and free:
        events = sum(one.events for _, gone in found for one in gone)
        taken = sum(one.size for _, gone in found for one in gone)
        click.echo(f"{events} events with {size(taken)} have left the ledger")
        note("noetl db vacuum gives the room back to the disk; without it the ledger uses it for new events")
    elif free:
        note("nothing was taken out; noetl retention --apply does")


def _name(verdict: Verdict) -> str:
    return verdict.root.stream_id.partition("/")[2]
