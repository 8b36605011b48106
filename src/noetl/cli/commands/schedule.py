"""noetl schedule: playbooks that run by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from noetl.cli.exits import OK
from noetl.cli.options import common, home_of
from noetl.cli.output import note, print_json, readable, table
from noetl.cli.remote import context_option, target_of
from noetl.cli.schedules import Shelf, with_schedules
from noetl.ports.schedules import Missed, Overlap

__all__ = ["command"]

_MOST_VERSION = (1 << 63) - 1


@click.group("schedule")
def command() -> None:
    """Have playbooks run by the clock of a time zone. They run while a server does, in the home or at a context."""


@command.command(
    "add", epilog='Example: noetl schedule add daily --playbook reports/daily --cron "0 6 * * 1-5" '
    "--timezone Europe/Paris",
)  # fmt: skip
@click.argument("name")
@click.option("--playbook", required=True, metavar="PATH", help="Its path in the catalog.")
@click.option("--version", type=click.IntRange(1, _MOST_VERSION), metavar="N", help="Always this version of it.")
@click.option("--cron", required=True, metavar="TEXT",
              help="Minute, hour, day, month and weekday; with six fields the first is the second.")  # fmt: skip
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Whose clock, as Europe/Paris.")
@click.option("--payload", metavar="JSON|@FILE", help="Workload values as one JSON object.")
@click.option("--missed", type=click.Choice(get_args(Missed)), default="skip", show_default=True,
              help="Which runs are made up for that could not begin in time.")  # fmt: skip
@click.option("--overlap", type=click.Choice(get_args(Overlap)), default="allow", show_default=True,
              help="Whether one may begin while the one before is running.")  # fmt: skip
@click.option("--pool", metavar="NAME", help="Which workers run it, where there are pools of them.")
@click.option("--replace", is_flag=True, help="Change the schedule of this name, if there is one.")
@context_option
@common
def add(
    name: str,
    payload: str | None,
    context: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
    **plan: Any,
) -> int:
    """Add a schedule; everything about it is checked before it is kept."""

    async def work(shelf: Shelf) -> None:
        from noetl.cli.commands.run import given_workload
        from noetl.runtime.schedules.views import ScheduleRequest

        asked = ScheduleRequest(name=name, payload=given_workload((), payload), **plan)
        _say(await shelf.add(asked), as_json)

    return with_schedules(context, home, tenant, work, create=True)


@command.command("list", epilog="Example: noetl schedule list")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="At most this many."
)
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
@context_option
@common
def list_(
    limit: int, cursor: str | None, context: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> int:
    """List schedules with their next and their last run. Times are UTC."""

    async def work(shelf: Shelf) -> None:
        _print_page(await shelf.list(limit, cursor), as_json)

    if target_of(context, home) is None and not home_of(home).has_ledger():
        _print_page({"schedules": [], "next_cursor": None}, as_json)
        return OK
    return with_schedules(context, home, tenant, work)


def _print_page(page: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(page)
        return
    if not page["schedules"]:
        note("No schedules yet.")
        return
    columns = ("name", "playbook", "cron", "zone", "next run", "last run", "execution", "status")
    table(None, columns, [_cells(one) for one in page["schedules"]])
    if page["next_cursor"]:
        note(f"More: noetl schedule list --cursor {page['next_cursor']}")


@command.command("show", epilog="Example: noetl schedule show daily")
@click.argument("name")
@context_option
@common
def show(name: str, context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    """Show everything about a schedule."""

    async def work(shelf: Shelf) -> None:
        found = await shelf.show(name)
        if as_json:
            print_json(found)
        else:
            last = found.pop("last_run") or {}
            fields = {**found, **{f"last_{name}": value for name, value in last.items()}}
            table(None, ("field", "value"), [(name, value) for name, value in fields.items() if value is not None])

    return with_schedules(context, home, tenant, work)


@command.command("pause", epilog="Example: noetl schedule pause daily")
@click.argument("name")
@context_option
@common
def pause(name: str, context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    """Hold a schedule: until it is resumed none of its times counts, and none is missed."""
    return _switch(name, context, home, tenant, as_json, paused=True)


@command.command("resume", epilog="Example: noetl schedule resume daily")
@click.argument("name")
@context_option
@common
def resume(name: str, context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    """Let a schedule go on with its next time."""
    return _switch(name, context, home, tenant, as_json, paused=False)


def _switch(
    name: str, context: str | None, home: Path | None, tenant: str | None, as_json: bool, *, paused: bool
) -> int:
    async def work(shelf: Shelf) -> None:
        _say(await shelf.switch(name, paused=paused), as_json)

    return with_schedules(context, home, tenant, work)


@command.command("remove", epilog="Example: noetl schedule remove daily")
@click.argument("name")
@context_option
@common
def remove(name: str, context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    """Take a schedule away; what it has started goes on."""

    async def work(shelf: Shelf) -> None:
        said = await shelf.remove(name)
        if as_json:
            print_json(said)
        else:
            note(f"removed {name}")

    return with_schedules(context, home, tenant, work)


@command.command("run", epilog="Example: noetl schedule run daily")
@click.argument("name")
@context_option
@common
def run(name: str, context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    """Have a server run a schedule now, whatever its times are."""

    async def work(shelf: Shelf) -> None:
        said = await shelf.run(name)
        if as_json:
            print_json(said)
        else:
            click.echo(said["execution_id"])
            note(f"noetl status {said['execution_id']} shows what becomes of it")

    return with_schedules(context, home, tenant, work)


def _say(view: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    when = f"runs next at {_short(view['next_run'])} UTC" if view["next_run"] else "is paused"
    note(readable(f"{view['name']} {when} ({view['cron']}, {view['timezone']})"))


def _cells(view: dict[str, Any]) -> tuple[Any, ...]:
    last = view["last_run"] or {}
    following = "paused" if view["status"] == "PAUSED" else _short(view["next_run"])
    return (
        view["name"], view["playbook"], view["cron"], view["timezone"], following, _short(last.get("fire_time")),
        last.get("execution_id"), last.get("status"),
    )  # fmt: skip


def _short(moment: str | None) -> str | None:
    return moment and moment[:19].replace("T", " ")
