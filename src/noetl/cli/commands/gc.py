"""noetl gc: what lies in the store and is nobody's any more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.counting import counted, size
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, table
from noetl.units import format_duration, parse_duration

if TYPE_CHECKING:
    from noetl.runtime.gc.collection import Collection, Group, Request
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["command"]

_MINUTE = 60_000_000
_AGES = ((86_400_000_000, "days"), (3_600_000_000, "h"), (0, "min"))


@click.command(epilog="Example: noetl gc, and when you agree: noetl gc --delete")
@click.option("--delete", is_flag=True, help="Delete what is dead. Without this it is only shown.")
@click.option("--grace", metavar="TIME", help="How old an object must be, such as 36h  [payloads.grace]")
@click.option("--shallow", is_flag=True, help="Do not look for names inside of stored objects.")
@click.option("--spark", is_flag=True, help="Have Spark look through log and store: for millions of objects.")
@click.option("--claim", is_flag=True, help="With --delete: the store at payloads.url is this ledger's alone.")
@click.option("-v", "--verbose", is_flag=True, help="Show some of the keys.")
@common
def command(
    delete: bool,
    grace: str | None,
    shallow: bool,
    spark: bool,
    claim: bool,
    verbose: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Find stored objects that nothing refers to any more, and delete them when asked to.

    An object is dead if no event of the ledger and nothing that is stored and alive names it; a result only if its
    execution has ended or is gone, too. Nothing goes before the grace is over. It may run beside executions and beside
    another one of its kind.
    """
    from noetl.runtime.gc.collection import Request

    settings = settings_of(tenant)
    seconds = settings.payloads.grace if grace is None else parse_duration(grace)
    place = home_of(home)
    request = Request(
        grace_seconds=seconds,
        delete=delete,
        trace=not shallow,
        spark=spark,
        claim=claim,
        shared=_shared(settings),
        directory=_directory(place, settings),
    )
    return run_async(_collect(place, settings, request, verbose, as_json))


async def _collect(home: Home, settings: Settings, request: Request, verbose: bool, as_json: bool) -> None:
    from noetl.runtime.clock import SystemClock
    from noetl.runtime.gc.collection import collect, leftovers
    from noetl.runtime.wiring import open_embedded

    segments = leftovers(SystemClock())
    async with open_embedded(home, settings) as embedded:
        now = embedded.clock.now()
        with counted(quiet=as_json) as progress:
            found = await collect(embedded, request, progress)
    groups = [*found.groups, *segments]
    if as_json:
        print_json(_document(request, found, groups))
    else:
        _show(request, found, groups, now, verbose)


def _shared(settings: Settings) -> list[str]:
    """Where keys lead to stores outside of the home: the own one, if it has an address, and those of routes."""
    from noetl.payloads.routes import routed

    routes = [routed(route.partition("=")[0].strip(), "") for route in settings.payloads.routes]
    return routes if settings.payloads.url is None else ["", *routes]


def _directory(home: Home, settings: Settings) -> Path | None:
    from urllib.parse import unquote, urlsplit

    url = settings.payloads.url
    if url is None:
        return home.payloads
    return Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None


def _document(request: Request, found: Collection, groups: list[Group]) -> dict[str, Any]:
    counts = found.counts
    return {
        "deleted": request.delete,
        "grace_seconds": request.grace_seconds,
        "events": found.events,
        "position": found.position,
        "looked_at": {"objects": counts.objects, "bytes": counts.bytes, "not_ours": counts.foreign},
        "dead": msgspec.to_builtins(groups),
        "young": counts.young,
        "removed": {"objects": counts.deleted, "bytes": counts.deleted_bytes, "spared": counts.spared},
        "damaged": counts.damaged,
    }


def _show(request: Request, found: Collection, groups: list[Group], now: int, verbose: bool) -> None:
    counts = found.counts
    if groups:
        rows = [(one.kind, one.objects, size(one.bytes), _age(one.oldest, now), one.reason) for one in groups]
        table(None, ("kind", "objects", "bytes", "oldest", "why it is dead"), rows)
    for group in groups if verbose else ():
        _show_keys(group)
    grace = format_duration(request.grace_seconds)
    click.echo(f"{counts.objects} objects with {size(counts.bytes)} looked at, {found.events} events")
    if counts.young:
        click.echo(f"{counts.young} more seem to be dead, but are younger than {grace}")
    if counts.foreign:
        click.echo(f"{counts.foreign} are none of NoETL's and are left alone")
    for key in counts.damaged:
        click.secho(f"damaged: {readable(key)}", fg="red")
    if request.delete:
        click.echo(f"deleted {counts.deleted} with {size(counts.deleted_bytes)}")
    elif found.objects:
        note("nothing was deleted; noetl gc --delete does")
    else:
        click.echo("nothing is dead")


def _show_keys(group: Group) -> None:
    for key in group.keys:
        click.echo(f"  {group.kind}  {readable(key)}")
    if group.objects > len(group.keys) > 0:
        click.echo(f"  and {group.objects - len(group.keys)} more")


def _age(oldest: str | None, now: int) -> str:
    from noetl.kernel.time import parse_time

    if oldest is None:
        return "-"
    micros = max(0, now - parse_time(oldest))
    unit, name = next(one for one in _AGES if micros >= one[0])
    return f"{micros / (unit or _MINUTE):.1f} {name}"
