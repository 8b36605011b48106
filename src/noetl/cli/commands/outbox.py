"""noetl outbox: publish what was committed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from noetl.cli.exits import OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.cli.probing import probe_at, probe_host

if TYPE_CHECKING:
    from noetl.kernel.event import Json
    from noetl.runtime.home import Home
    from noetl.runtime.publishing import Publisher
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["command"]

_MOST_PORT = 65535


@click.command(epilog="Example: noetl outbox --once")
@click.option("--once", is_flag=True, help="Publish what is due, put back what the streams have lost, and return.")
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Events at a time.")
@click.option("--commands", is_flag=True, help="Put commands into the queue for workers, too.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, _MOST_PORT),
    metavar="N",
    help="Answer /live, /health, /metrics and /summary there; 0 for any port that is free.",
)
@probe_host
@common
def command(
    once: bool,
    batch: int,
    commands: bool,
    metrics_host: str,
    metrics_port: int | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Publish the events of this home to NATS JetStream (nats.url), in order and each at least once.

    Several may run at once. One that is killed loses nothing: what it had in hand is due again ten seconds later. A
    stream that was purged, wiped or has lost its end is filled again from the ledger. Runs until SIGTERM or an
    interrupt.
    """
    settings = settings_of(tenant)
    place = home_of(home)
    if once:
        return run_async(_once(place, settings, batch, commands, as_json))
    return run_async(_serve(place, settings, batch, commands, probe_at(metrics_host, metrics_port), as_json))


async def _once(home: Home, settings: Settings, batch: int, commands: bool, as_json: bool) -> int:
    from noetl.runtime.messaging import open_publisher

    async with open_publisher(home, settings, batch=batch, commands=commands) as (embedded, publisher):
        await publisher.drain()
        found = await publisher.check()
        await publisher.settle()
        pending = await embedded.outbox.pending_count()
    totals = publisher.totals
    if as_json:
        document = {"published": totals.published, "failed": totals.failed, "pending": pending}
        print_json({**document, "checked": found.looked_at, "refilled": found.missing})
    else:
        note(f"published {totals.published} events, {pending} are left")
        if found.missing:
            note(f"the streams had lost {found.missing} events, which are in them again")
    return OK


async def _serve(
    home: Home, settings: Settings, batch: int, commands: bool, at: tuple[str, int] | None, as_json: bool
) -> int:
    import contextlib

    from noetl.cli.stopping import asked_to_stop
    from noetl.runtime.condition import saying
    from noetl.runtime.levels import OutboxLevels
    from noetl.runtime.messaging import open_publisher
    from noetl.runtime.probe import probed

    stop = asked_to_stop()
    async with contextlib.AsyncExitStack() as opened:
        embedded, publisher = await opened.enter_async_context(
            open_publisher(home, settings, batch=batch, commands=commands)
        )
        await opened.enter_async_context(
            saying(embedded.kv, "publisher", publisher.name, lambda: publisher.totals.last_error)
        )
        port = None
        if at is not None:

            async def summary() -> Json:
                return await _summary(embedded, publisher)

            outbox = OutboxLevels(embedded.outbox, embedded.clock)
            port = await opened.enter_async_context(probed(*at, summary, outbox.set))
        if as_json:
            print_json({"publishing": True, "metrics_port": port})
        else:
            where = "" if at is None else f"; http://{at[0]}:{port}/summary says how it goes"
            note(f"publishing the events of {home.path}{where}")
        await publisher.run(stop)
    if not as_json:
        note(f"published {publisher.totals.published} events")
    return OK


async def _summary(embedded: Embedded, publisher: Publisher) -> Json:
    pending = await embedded.outbox.pending_count()
    totals: Json = msgspec.to_builtins(publisher.totals)
    return {"ok": publisher.totals.last_error is None, "pending": pending, **totals}
