"""noetl spark: keep a Spark session warm between the runs of a home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.exits import OK, UNAVAILABLE
from noetl.cli.options import common, home_of, settings_of
from noetl.cli.output import note, print_json

if TYPE_CHECKING:
    from noetl.data.session.conf import SessionConf
    from noetl.data.session.warm import WarmRecord

__all__ = ["command"]


@click.group("spark")
def command() -> None:
    """Keep a Spark session warm between the runs of this home, so that a run need not wait for Java to start."""


@command.command("start", epilog="Example: noetl spark start")
@click.option("--master", metavar="URL", help="Where Spark runs  [spark.master]")
@click.option("--background", is_flag=True, hidden=True, help="Be the process that keeps it.")
@common
def start(master: str | None, background: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Start a Spark session, and return once it is ready. Runs of this home use it if their settings fit."""
    conf, place = _conf(master, tenant), home_of(home)
    if background:
        from noetl.data.session.keeping import keep_warm

        keep_warm(place.path, conf, lambda _: None)
        return OK
    from noetl.cli.warming import start_keeper

    place.create()
    record = start_keeper(place.path, conf)
    if as_json:
        print_json(_as_document("running", record, users=0))
    else:
        note(f"a Spark session on {record.master} is warm (process {record.pid}, Spark {record.spark})")
    return OK


@command.command("stop", epilog="Example: noetl spark stop")
@click.option("--now", is_flag=True, help="Do not wait for the runs that use it; their Spark jobs fail.")
@common
def stop(now: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """End the warm Spark session of this home, and wait until it has ended."""
    from noetl.cli.warming import stop_keeper

    settings_of(tenant)
    stopped = stop_keeper(home_of(home).path, now=now)
    if as_json:
        print_json({"stopped": stopped is not None, "pid": stopped})
    else:
        note("there is no warm session" if stopped is None else f"stopped the warm session (process {stopped})")
    return OK


@command.command("status", epilog="Example: noetl spark status --json")
@common
def status(home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Say whether this home has a warm Spark session, and who uses it. Exits 3 if there is none."""
    from noetl.data.session.warm import Warm

    settings_of(tenant)
    warm = Warm(home_of(home).path)
    record = warm.find()
    state = "running" if record is not None else ("starting" if warm.is_held() else "stopped")
    users = len(warm.users()) if record is not None else 0
    if as_json:
        print_json(_as_document(state, record, users))
    elif record is not None:
        since = record.started_at[:19]
        note(f"{state} on {record.master} (process {record.pid}, Spark {record.spark}, since {since}, used by {users})")
        if record.ui is not None:
            note(f"Spark's pages are at {record.ui}")
    else:
        note("a warm session is starting or stopping" if state == "starting" else "there is no warm session")
    return OK if record is not None else UNAVAILABLE


def _conf(master: str | None, tenant: str | None) -> SessionConf:
    from noetl.data.session.conf import session_conf
    from noetl.errors import InvalidInput

    conf = session_conf(settings_of(tenant).spark, {"master": master} if master else None)
    if conf.remote is not None:
        raise InvalidInput(
            f"spark.remote is {conf.remote}: a Spark Connect server is warm by itself",
            hint="unset spark.remote, or give --master, to keep a session of this machine",
        )
    return conf


def _as_document(state: str, record: WarmRecord | None, users: int) -> dict[str, Any]:
    """The record without what lets a caller in."""
    import msgspec

    document = {} if record is None else msgspec.to_builtins(record)
    document.pop("secret", None)
    return {"status": state, **document, "users": users}
