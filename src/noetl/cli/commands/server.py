"""noetl server: start, stop and look at the server of a home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.exits import OK, UNAVAILABLE
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json

if TYPE_CHECKING:
    from noetl.runtime.presence import ServerRecord


__all__ = ["command"]

_MOST_PORT = 65535


class _StartByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`noetl server` and `noetl server --port 9000` start one."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group("server", cls=_StartByDefault)
def command() -> None:
    """Start, stop and look at the server of this home. Without a command it starts one."""


@command.command("start", epilog="Example: noetl server start --port 8082 --detach")
@click.option(
    "--host", metavar="ADDRESS", help="Where to listen; not beyond this machine without --auth  [server.host]"
)
@click.option(
    "--port", type=click.IntRange(0, _MOST_PORT), metavar="N", help="Which port; 0 for any that is free  [server.port]"
)
@click.option("--auth", type=click.Choice(["none", "token"]), help="Who may call  [server.auth]")
@click.option("--workers", type=click.IntRange(0, 1000), metavar="N",
              help="Commands at once; with 0 they are left to noetl worker  [server.workers]")  # fmt: skip
@click.option("--detach", is_flag=True, help="Start it in the background, and return once it answers.")
@click.option("--background", is_flag=True, hidden=True, help="Log to the file only.")
@common
def start(
    host: str | None,
    port: int | None,
    auth: str | None,
    workers: int | None,
    detach: bool,
    background: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Serve the HTTP API over this home, and run what it is asked to, until it is stopped.

    The first interrupt or SIGTERM lets what is running finish, for as long as server.drain says; a second one ends it
    at once. An execution that did not finish goes on when the server is started again.
    """
    import msgspec

    settings = settings_of(tenant)
    given = {"host": host, "port": port, "auth": auth, "workers": workers}
    chosen = msgspec.structs.replace(
        settings.server, **{name: value for name, value in given.items() if value is not None}
    )
    settings = msgspec.structs.replace(settings, server=chosen)
    place = home_of(home)
    if detach:
        from noetl.cli.background import start_server

        started = start_server(place, settings, tenant)
        _say_started(started, as_json)
        return OK

    from noetl.server.hosting import host_home

    def ready(record: ServerRecord) -> None:
        _say_started(record, as_json)

    return run_async(host_home(place, settings, ready, console=not background))


@command.command("stop", epilog="Example: noetl server stop")
@click.option("--now", is_flag=True, help="Do not wait for what is running; it goes on at the next start.")
@common
def stop(now: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Stop the server of this home and wait until it has ended."""
    from noetl.cli.background import stop_server

    settings = settings_of(tenant)
    stopped = stop_server(home_of(home).path, settings, now=now)
    if as_json:
        print_json({"stopped": stopped is not None, "pid": stopped})
    else:
        note("there is no server running" if stopped is None else f"stopped the server (process {stopped})")
    return OK


@command.command("status", epilog="Example: noetl server status --json")
@common
def status(home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Say whether this home has a server, where it listens and whether it answers. Exits 3 if it does not."""
    from noetl.cli.background import answers
    from noetl.runtime.presence import Presence

    presence = Presence(home_of(home).path)
    record = presence.running()
    healthy = record is not None and answers(record)
    state = "running" if healthy else ("not answering" if presence.is_held() else "stopped")
    if as_json:
        print_json({"status": state, **(_as_document(record) if record else {})})
    elif record is not None:
        note(f"{state} at {record.url} (process {record.pid}, auth {record.auth}, since {record.started_at[:19]})")
    else:
        note("a server is starting or stopping" if presence.is_held() else "there is no server running")
    return OK if healthy else UNAVAILABLE


def _say_started(record: ServerRecord, as_json: bool) -> None:
    if as_json:
        print_json(_as_document(record))
    else:
        note(f"listening at {record.url} (process {record.pid}, auth {record.auth})")


def _as_document(record: ServerRecord) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(record)
    return document
