"""noetl import: bring a log from a file into the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import print_json, readable
from noetl.errors import (
    Conflict,
    IdempotencyMismatch,
    IntegrityMismatch,
    InvalidEvent,
    NoetlError,
    VersionConflict,
)

if TYPE_CHECKING:
    from noetl.kernel.event import Envelope

__all__ = ["command"]

_MOST_ROOTS = 10


@click.command(
    "import",
    epilog="Example: noetl import orders.jsonl",
)
@click.argument("file", type=click.Path(path_type=Path))
@common
def command(file: Path, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Bring a log from FILE (JSON lines or Arrow Feather) into the ledger.

    Every event is checked: its checksum, its place in the hash chain, its meaning. All of the file is
    taken or nothing; events that are here already are skipped, so importing twice is harmless.
    """
    return run_async(_import(file, home, tenant, as_json))


async def _import(file: Path, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.archive.exchange import checked, read_log
    from noetl.kernel.upcast import default_registry
    from noetl.runtime.wiring import open_embedded

    events = read_log(file)
    seen = _Seen()
    async with open_embedded(home_of(home), settings_of(tenant), create=True) as embedded:
        try:
            adopted = await embedded.ledger.adopt(checked(seen.watch(events), default_registry()))
        except (InvalidEvent, Conflict, IntegrityMismatch) as error:
            raise _refusal(error, events.place) from None
        caught = await embedded.projector.catch_up()
    if as_json:
        print_json(
            {
                "file": str(file),
                "imported": adopted.written,
                "present": adopted.present,
                "roots": sorted(seen.roots),
                "position": caught.position,
            }
        )
        return
    click.echo(f"Imported {adopted.written} events from {file}")
    if adopted.present:
        click.echo(f"  {adopted.present} were here already")
    for root in sorted(seen.roots)[:_MOST_ROOTS]:
        click.echo(f"  {readable(root)}")
    if len(seen.roots) > _MOST_ROOTS:
        click.echo(f"  and {len(seen.roots) - _MOST_ROOTS} more")


def _refusal(error: NoetlError, place: str) -> NoetlError:
    """Why an event was not taken, as whoever has the file should read it."""
    if isinstance(error, VersionConflict):
        return IntegrityMismatch(
            f"{place}: version {error.expected + 1} of '{error.stream_id}' follows version {error.actual}",
            hint="lines are missing, repeated or out of order; export the log again",
        )
    if isinstance(error, IdempotencyMismatch):
        return IntegrityMismatch(
            f"idempotency key '{error.key}' belongs to event {error.event_id} of another log; nothing was imported",
            hint="import into another --home to compare them",
        )
    if isinstance(error, Conflict):
        return IntegrityMismatch(f"{place}: {error.message}", hint="the log goes on after its end; export it again")
    error.message = f"{place}: {error.message}"
    return error


class _Seen:
    """Remembers the roots that pass by."""

    def __init__(self) -> None:
        self.roots: set[str] = set()

    def watch(self, events: Iterable[Envelope]) -> Iterator[Envelope]:
        from noetl.kernel.streams import root_of

        for event in events:
            self.roots.add(root_of(event.stream_id))
            yield event
