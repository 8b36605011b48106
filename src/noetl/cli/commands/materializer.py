"""noetl materializer: from the log on JetStream to the event table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.exits import OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json

if TYPE_CHECKING:
    from noetl.kernel.event import Json
    from noetl.observe.prometheus import PrometheusRecorder
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["command"]

_MOST_PORT = 65535


class _RunByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`noetl materializer` runs one."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("materializer", cls=_RunByDefault)
def command() -> None:
    """Copy a log that is kept on JetStream into its database. Without a command it runs a materializer."""


@command.command("run", epilog="Example: noetl materializer --metrics-port 9466")
@click.option("--once", is_flag=True, help="Copy what is there, and return.")
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Events at a time.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, _MOST_PORT),
    metavar="N",
    help="Answer /health, /metrics and /summary there, on this machine only; 0 for any port that is free.",
)
@common
def run(
    once: bool, batch: int, metrics_port: int | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Copy the events of a log on JetStream (ledger.mode = "wal") into the database (ledger.url).

    Nobody else writes the events there. It can be killed anywhere, and several may run at once. While the database is
    away the log grows all the same; what is in it is read from JetStream until it is copied. Messages that were copied
    and are older than nats.keep are dropped. Runs until SIGTERM or an interrupt.
    """
    settings = settings_of(tenant)
    place = home_of(home)
    if once:
        return run_async(_once(place, settings, batch, as_json))
    return run_async(_serve(place, settings, batch, metrics_port, as_json))


@command.command("leave", epilog="Example: noetl materializer leave")
@common
def leave(home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """End the log on JetStream: copy the rest, and let the database be written directly again.

    Stop everything that writes first: from the first moment on the log takes nothing more. Then set ledger.mode back to
    "direct". Killed anywhere, do it again.
    """
    return run_async(_leave(home_of(home), settings_of(tenant), as_json))


@command.command("anew", epilog="Example: noetl materializer anew")
@common
def anew(home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Begin a new log behind what the database has, where the old one is lost.

    What was acknowledged and not copied is lost with it. Refused while the old log is whole.
    """
    return run_async(_anew(home_of(home), settings_of(tenant), as_json))


async def _leave(home: Home, settings: Settings, as_json: bool) -> int:
    from noetl.runtime.wal_switch import leave as leave_log

    done = await leave_log(home, settings)
    if as_json:
        print_json({"position": done.position, "copied": done.copied})
    else:
        note(f"copied {done.copied} events; the database ends at position {done.position} and is written directly")
    return OK


async def _anew(home: Home, settings: Settings, as_json: bool) -> int:
    from noetl.runtime.wal_switch import begin_anew

    done = await begin_anew(home, settings)
    if as_json:
        print_json({"position": done.position})
    else:
        note(f"a new log begins behind position {done.position}")
    return OK


async def _once(home: Home, settings: Settings, batch: int, as_json: bool) -> int:
    from noetl.runtime.wal import open_materializer

    async with open_materializer(home, settings, batch=batch) as opened:
        await opened.materializer.drain()
        found = await opened.materializer.summary()
    if as_json:
        print_json(found)
    else:
        note(f"copied {found['events']} events, {found['lag_events']} are left")
    return OK


async def _serve(home: Home, settings: Settings, batch: int, metrics_port: int | None, as_json: bool) -> int:
    import contextlib

    from noetl.cli.stopping import asked_to_stop
    from noetl.runtime.probe import probed
    from noetl.runtime.wal import open_materializer

    stop = asked_to_stop()
    async with contextlib.AsyncExitStack() as opened:
        materializer = (await opened.enter_async_context(open_materializer(home, settings, batch=batch))).materializer
        port = None
        if metrics_port is not None:

            async def levels(recorder: PrometheusRecorder) -> None:
                _set_levels(recorder, await materializer.summary())

            port = await opened.enter_async_context(probed("127.0.0.1", metrics_port, materializer.summary, levels))
        if as_json:
            print_json({"materializing": True, "metrics_port": port})
        else:
            where = "" if port is None else f"; http://127.0.0.1:{port}/summary says how it goes"
            note(f"copying the log of {home.path} into its database{where}")
        await materializer.run(stop)
    if not as_json:
        note(f"copied {materializer.counted.events} events")
    return OK


def _set_levels(recorder: PrometheusRecorder, found: Json) -> None:
    """The gauges, as far as somebody has answered."""
    recorder.level("noetl_materializer_position", found["position"])
    recorder.level("noetl_materializer_lag_seconds", found["lag_seconds"])
    if found["lag_events"] is not None:
        recorder.level("noetl_materializer_lag_events", found["lag_events"])
