"""noetl events: an execution's log, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, table, with_text_ids
from noetl.cli.remote import context_option, events_on, target_of
from noetl.kernel.ids import MAX_ID

if TYPE_CHECKING:
    from noetl.kernel.event import Recorded
    from noetl.kernel.tail import Stream
    from noetl.runtime.wiring import Embedded

__all__ = ["command"]

_SCAN = 2000


@click.command(epilog="Example: noetl events 318485246779594112 --type frame.committed")
@click.argument("execution", metavar="ID")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type; may be repeated.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, metavar="N", help="At most this many."
)
@click.option("--cursor", type=click.IntRange(0, MAX_ID), default=0, metavar="N", help="Position after which to begin.")
@click.option("--follow", is_flag=True, help="Go on as events arrive, until the execution has ended.")
@click.option(
    "--resolve-payloads", is_flag=True, help="Put payloads that are kept outside of their events back into them."
)
@click.option("--degraded", is_flag=True, help="Mark an event whose payload cannot be had, instead of failing.")
@context_option
@common
def command(
    execution: str,
    types: tuple[str, ...],
    limit: int,
    cursor: int,
    follow: bool,
    resolve_payloads: bool,
    degraded: bool,
    context: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Show the events of an execution in the order they were committed."""
    if degraded and not resolve_payloads:
        raise click.UsageError("--degraded says what to do about payloads; add --resolve-payloads")
    if resolve_payloads and follow:
        raise click.UsageError("--resolve-payloads shows what is there already; leave out --follow")
    if (target := target_of(context, home)) is not None:
        if resolve_payloads:
            raise click.UsageError("--resolve-payloads reads the payload store of a home; use it without --context")
        return events_on(target, execution, types, limit, cursor, follow, as_json)
    resolve = None if not resolve_payloads else "degraded" if degraded else "strict"
    return run_async(_events(execution, types, limit, cursor, follow, resolve, home, tenant, as_json))


async def _events(
    execution: str,
    types: Sequence[str],
    limit: int,
    cursor: int,
    follow: bool,
    resolve: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        root = await find_root(embedded, execution, settings)
        if follow:
            await _follow(embedded, root, types, cursor, as_json)
            return
        page, next_cursor = await _page(embedded, root, types, limit, cursor)
        if resolve is not None:
            page = [await _resolved(embedded, item, degraded=resolve == "degraded") for item in page]
    if as_json:
        print_json({"events": [_document(item) for item in page], "next_cursor": next_cursor})
        return
    table(None, ("position", "event", "type", "step", "status", "stream", "time"), [_row(item) for item in page])
    if next_cursor:
        note(f"More: noetl events {execution} --cursor {next_cursor}")


async def _page(
    embedded: Embedded, root: Stream, types: Sequence[str], limit: int, cursor: int
) -> tuple[list[Recorded], str | None]:
    """At most `limit` events; with a filter the log is scanned in pages, never loaded whole."""
    found: list[Recorded] = []
    while len(found) <= limit:
        size = limit + 1 if not types else _SCAN
        page = await embedded.ledger.read_root(root, after_position=cursor, limit=size)
        found += [item for item in page if not types or item.event.event_type in types]
        if len(page) < size:
            break
        cursor = page[-1].position
    more = len(found) > limit
    found = found[:limit]
    return found, str(found[-1].position) if more else None


async def _resolved(embedded: Embedded, item: Recorded, *, degraded: bool) -> Recorded:
    store = embedded.payloads.of_tenant(item.event.tenant_id)
    return msgspec.structs.replace(item, event=await store.resolve_envelope(item.event, degraded=degraded))


async def _follow(embedded: Embedded, root: Stream, types: Sequence[str], cursor: int, as_json: bool) -> None:
    """What is there already, then what arrives. An execution that has ended is shown to its end."""
    from noetl.kernel.streams import root_of

    ended = False
    reached = await embedded.ledger.position()
    while page := await embedded.ledger.read_root(root, after_position=cursor, to_position=reached, limit=_SCAN):
        for item in page:
            ended = _show(item, types, as_json) or ended
        cursor = page[-1].position
    if ended:
        return
    async for item in embedded.ledger.subscribe(after_position=reached):
        ours = item.event.tenant_id == root.tenant_id and root_of(item.event.stream_id) == root.stream_id
        if ours and _show(item, types, as_json):
            return


def _show(item: Recorded, types: Sequence[str], as_json: bool) -> bool:
    """Print an event; True if it ends its execution."""
    from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type

    if not types or item.event.event_type in types:
        click.echo(msgspec.json.encode(_document(item)).decode() if as_json else _line(item))
    return canonical_type(item.event.event_type) in TERMINAL_TYPES


def _document(item: Recorded) -> dict[str, Any]:
    return with_text_ids({**msgspec.to_builtins(item.event), "position": item.position})  # type: ignore[no-any-return]


def _row(item: Recorded) -> tuple[Any, ...]:
    event = item.event
    below = event.stream_id.split("/")[2:3] or ["·"]
    time = event.event_time[11:23]
    return (item.position, event.event_id, event.event_type, event.node_name, event.status, below[0], time)


def _line(item: Recorded) -> str:
    event = item.event
    return readable(f"{item.position:>8}  {event.event_time}  {event.event_type:<22} {event.node_name or ''}".rstrip())
