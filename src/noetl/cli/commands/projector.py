"""noetl projector: from published events to the rows that everybody reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.commands.rebuild import command as rebuild
from noetl.cli.exits import OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.cli.probing import probe_at, probe_host
from noetl.errors import InvalidSetting

if TYPE_CHECKING:
    from noetl.kernel.event import Json
    from noetl.observe.prometheus import PrometheusRecorder
    from noetl.replay.shares import Share
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["command"]

_MOST_PORT = 65535
_MOST_BATCH = 10_000
_LEAST_SETTLE = 1.0


class _RunByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`noetl projector --shard 0/2` runs one."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("projector", cls=_RunByDefault)
def command() -> None:
    """Project what was published into rows. Without a command it runs a projector."""


@command.command("run", epilog="Example: noetl projector --shard 0/2 --metrics-port 9465")
@click.option("--shard", metavar="I/N", help="Which share of the executions, such as 0/4 or host/4  [projector.shard]")
@click.option("--once", is_flag=True, help="Project what is there, and return.")
@click.option("--batch", type=click.IntRange(1, _MOST_BATCH), metavar="N", help="Events at a time  [projector.batch]")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, _MOST_PORT),
    metavar="N",
    help="Answer /live, /health, /metrics and /summary there; 0 for any port that is free.",
)
@probe_host
@common
def run(
    shard: str | None,
    once: bool,
    batch: int | None,
    metrics_host: str,
    metrics_port: int | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Follow the streams of NATS JetStream (nats.url) and bring the rows of this ledger up to date.

    N projectors have a share of the executions each, known by I: one that was killed and comes back, here or
    elsewhere, goes on where it was. What arrives twice, late or never changes nothing, because what is folded comes
    from the ledger. Runs until SIGTERM or an interrupt.
    """
    settings = settings_of(tenant)
    share, size = _asked(settings, shard, batch)
    place = home_of(home)
    if once:
        return run_async(_once(place, settings, share, size, as_json))
    return run_async(_serve(place, settings, share, size, probe_at(metrics_host, metrics_port), as_json))


command.add_command(rebuild)


def _asked(settings: Settings, shard: str | None, batch: int | None) -> tuple[Share, int]:
    """What is to be projected, and how; refused before anything is touched. Raises InvalidInput."""
    from noetl.replay.shares import parse_share

    given = settings.projector
    text = shard or given.shard
    if text is None:
        raise click.UsageError("it is not said which share to project: use --shard 0/1 for all, or projector.shard")
    size = given.batch if batch is None else batch
    if size > _MOST_BATCH:
        raise InvalidSetting(f"projector.batch is {size}", hint=f"it is at most {_MOST_BATCH}")
    if given.settle < _LEAST_SETTLE:
        raise InvalidSetting(f"projector.settle is {given.settle:g} s", hint=f"it is at least {_LEAST_SETTLE:g} s")
    return parse_share(text), size


async def _once(home: Home, settings: Settings, share: Share, batch: int, as_json: bool) -> int:
    from noetl.runtime.messaging import open_projector

    async with open_projector(home, settings, share, batch=batch) as (_, projector):
        while await projector.step():
            pass
        await projector.walk()
        await projector.take_snapshots()
        found = await projector.summary()
    if as_json:
        print_json(found)
    else:
        note(f"{share.name} has projected {found['acknowledged']} events, up to position {found['checkpoint']}")
    return OK


async def _serve(
    home: Home, settings: Settings, share: Share, batch: int, at: tuple[str, int] | None, as_json: bool
) -> int:
    import contextlib

    from noetl.cli.stopping import asked_to_stop
    from noetl.runtime.condition import saying
    from noetl.runtime.messaging import open_projector
    from noetl.runtime.probe import probed

    stop = asked_to_stop()
    async with contextlib.AsyncExitStack() as opened:
        embedded, projector = await opened.enter_async_context(open_projector(home, settings, share, batch=batch))
        await opened.enter_async_context(
            saying(embedded.kv, "projector", share.name, lambda: projector.counts.last_error)
        )
        port = None
        if at is not None:

            async def levels(recorder: PrometheusRecorder) -> None:
                _set_levels(recorder, share.name, await projector.summary())

            port = await opened.enter_async_context(probed(*at, projector.summary, levels))
        if as_json:
            print_json({"projecting": share.name, "metrics_port": port})
        else:
            where = "" if at is None else f"; http://{at[0]}:{port}/summary says how it goes"
            note(f"{share.name} projects {len(share.shards)} of 256 shards{where}")
        await projector.run(stop, walk_every=settings.projector.walk)
    if not as_json:
        note(f"{share.name} has projected {projector.counts.acknowledged} events")
    return OK


def _set_levels(recorder: PrometheusRecorder, name: str, found: Json) -> None:
    """The gauges, as far as somebody has answered."""
    recorder.level("noetl_projector_lag_seconds", found["lag_seconds"], name)
    recorder.level("noetl_projector_position", found["last_position"], name)
    if found["lag"] is not None:
        recorder.level("noetl_projector_lag_events", found["lag"]["waiting"], name)
        recorder.level("noetl_projector_unsettled_events", found["lag"]["unsettled"], name)
    if found["checkpoint"] is not None:
        recorder.level("noetl_projector_checkpoint", found["checkpoint"], name)
