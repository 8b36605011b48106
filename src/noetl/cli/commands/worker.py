"""noetl worker: run commands for a server, without a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.exits import OK, USAGE
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.cli.probing import probe_at, probe_host

if TYPE_CHECKING:
    from noetl.observe.prometheus import PrometheusRecorder
    from noetl.runtime.home import Home
    from noetl.runtime.remote.hosting import Post
    from noetl.settings import Settings

__all__ = ["command"]

_MOST_PORT = 65535


@click.command(epilog="Example: noetl worker --pool shared --server http://127.0.0.1:8082 --nats nats://127.0.0.1:4222")
@click.option("--pool", "pools", multiple=True, default=("shared",), show_default=True, metavar="NAME",
              help="Whose commands it takes; may be repeated.")  # fmt: skip
@click.option("--server", "servers", required=True, multiple=True, metavar="URL,...", envvar="NOETL_SERVER_URL",
              show_envvar=True,
              help="The servers that give out the commands: several with commas, or repeated; any of them does.",
              )  # fmt: skip
@click.option("--token", envvar="NOETL_TOKEN", show_envvar=True, metavar="TEXT",
              help="A token with the role worker, where the server asks for one.")  # fmt: skip
@click.option("--nats", "nats_url", metavar="URL", help="The queue that they come by  [nats.url]")
@click.option("--concurrency", type=click.IntRange(1, 1000), metavar="N", help="Commands at once  [tools.slots]")
@click.option("--labels", metavar="K=V,...", default="", help="What this worker has; commands may require it.")
@click.option("--metrics-port", type=click.IntRange(0, _MOST_PORT), metavar="N",
              help="Answer /live, /health, /metrics and /summary there; 0 for any port that is free.",
              )  # fmt: skip
@probe_host
@common
def command(
    pools: tuple[str, ...],
    servers: tuple[str, ...],
    token: str | None,
    nats_url: str | None,
    concurrency: int | None,
    labels: str,
    metrics_host: str,
    metrics_port: int | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Take commands from the queue, run them here, and report to the server, which was started with --workers 0.

    It needs no database. Killed at any moment, its commands are delivered to others once their leases lapse. The first
    interrupt or SIGTERM lets what is running finish, for as long as server.drain says, and gives the rest back.
    """
    import msgspec

    from noetl.runtime.remote.hosting import Post

    settings = settings_of(tenant)
    if nats_url is not None:
        settings = msgspec.structs.replace(settings, nats=msgspec.structs.replace(settings.nats, url=nats_url))
    post = Post(
        urls=_urls(servers), token=token, pools=pools, concurrency=concurrency or settings.tools.slots or _slots(),
        labels=_labels(labels),
    )  # fmt: skip
    return run_async(_serve(home_of(home), settings, post, probe_at(metrics_host, metrics_port), as_json))


async def _serve(home: Home, settings: Settings, post: Post, at: tuple[str, int] | None, as_json: bool) -> int:
    import asyncio
    import contextlib
    import signal

    from noetl.runtime.probe import probed
    from noetl.runtime.process import settle_down
    from noetl.runtime.remote.hosting import open_worker

    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as opened:
        worker = await opened.enter_async_context(open_worker(home, settings, post))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        port = None
        if at is not None:

            async def summary() -> dict[str, object]:
                return worker.summary()

            async def levels(recorder: PrometheusRecorder) -> None:
                recorder.level("noetl_worker_slots_busy", worker.busy)
                for pool, depth in (await worker.depths()).items():
                    recorder.level("noetl_queue_commands", depth.waiting, pool, "waiting")
                    recorder.level("noetl_queue_commands", depth.leased, pool, "leased")

            port = await opened.enter_async_context(probed(*at, summary, levels))
        if as_json:
            print_json({"working": True, "pools": list(post.pools), "concurrency": post.concurrency,
                        "metrics_port": port})  # fmt: skip
        else:
            servers, pools = " or ".join(post.urls), ", ".join(post.pools)
            note(f"working for {servers}, pools {pools}, {post.concurrency} commands at once")
        settle_down()
        await worker.run(drain=settings.server.drain)
        if worker.refusal is not None:
            note(f"the server has refused this worker: {worker.refusal}")
            return USAGE
    return OK


def _urls(given: tuple[str, ...]) -> tuple[str, ...]:
    """Every address once, whichever way it was given; in a variable several stand with commas, or with spaces."""
    found = [one for text in given for one in text.replace(",", " ").split()]
    if not found:
        raise click.BadParameter("there is no address in it", param_hint="--server")
    return tuple(dict.fromkeys(found))


def _labels(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"'{part}' is not NAME=VALUE", param_hint="--labels")
        found[name] = value
    return found


def _slots() -> int:
    import os

    return max(4, 2 * (os.cpu_count() or 1))
