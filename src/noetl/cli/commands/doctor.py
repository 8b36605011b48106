"""noetl doctor: is everything here that a run may need, and if not, what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from noetl.cli.exits import OK, UNAVAILABLE
from noetl.cli.options import common, home_of, settings_of
from noetl.cli.output import print_json
from noetl.errors import InvalidSetting, NoetlError
from noetl.settings import Settings, format_size, resolve_home

__all__ = ["command"]

_WANTED_SQLITE = (3, 37)  # STRICT tables
_ROOM = 1 << 30
_EARLIEST = 1_735_689_600  # 2025: a clock before that was never set


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. What is only wanted for some runs is a warning when it is missing."""

    what: str
    state: str
    detail: str
    fix: str | None = None


@click.command(epilog="Example: noetl doctor --json")
@common
def command(home: Path | None, tenant: str | None, as_json: bool) -> int:
    """Check Python, SQLite, the home, disk, shared memory, clock, Java and Spark; say how to fix what is not right."""
    place = resolve_home(home, os.environ, Path.cwd())
    checks: list[Callable[[], Finding]] = [
        _python, _sqlite, lambda: _settings(tenant), lambda: _home(place), lambda: _disk(place), _memory, _clock,
        _java, _spark,
    ]  # fmt: skip
    found = [check() for check in checks]
    if as_json:
        print_json({"ok": all(item.state != "bad" for item in found), "checks": msgspec.to_builtins(found)})
    else:
        for item in found:
            _show(item)
    return OK if all(item.state != "bad" for item in found) else UNAVAILABLE


def _show(item: Finding) -> None:
    mark, colour = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}[item.state]
    click.secho(f"  {mark} ", fg=colour, nl=False)
    click.echo(f"{item.what:<10} {item.detail}")
    if item.fix:
        click.secho("      fix: ", fg="cyan", nl=False)
        click.echo(item.fix)


def _python() -> Finding:
    return Finding(what="python", state="ok", detail=f"{sys.version.split()[0]} at {sys.executable}")


def _sqlite() -> Finding:
    from noetl.adapters.sqlite.database import VERSION

    old = VERSION < _WANTED_SQLITE
    fix = "install a Python with a newer SQLite" if old else None
    return Finding(what="sqlite", state="bad" if old else "ok", detail=".".join(map(str, VERSION)), fix=fix)


def _settings(tenant: str | None) -> Finding:
    try:
        settings_of(tenant)
    except NoetlError as error:
        return Finding(what="settings", state="bad", detail=error.message, fix=error.hint)
    return Finding(what="settings", state="ok", detail="understood; noetl config view shows them")


def _home(place: Path) -> Finding:
    nearest = next(folder for folder in (place, *place.parents) if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(what="home", state="bad", detail=f"{place} cannot be written", fix="choose another with --home")
    try:
        if settings_of().ledger.url is None and not (place / "ledger.db").exists():
            return Finding(what="home", state="ok", detail=f"{place} (nothing in it yet)")
        asyncio.run(_open(place))
    except InvalidSetting:
        return Finding(what="home", state="ok", detail=f"{place} (not opened: see settings)")
    except NoetlError as error:
        return Finding(what="home", state="bad", detail=error.message, fix=error.hint)
    return Finding(what="home", state="ok", detail=str(place))


async def _open(place: Path) -> None:
    from noetl.runtime.wiring import open_embedded

    async with open_embedded(home_of(place), settings_of()):
        pass


def _disk(place: Path) -> Finding:
    nearest = next(folder for folder in (place, *place.parents) if folder.exists())
    free = shutil.disk_usage(nearest).free
    detail = f"{free / (1 << 30):.1f} GiB free"
    fix = "free some space, or choose another --home" if free < _ROOM else None
    return Finding(what="disk", state="warning" if fix else "ok", detail=detail, fix=fix)


def _memory() -> Finding:
    """Shared memory smaller than its budget costs speed only: tables that do not fit are read from the store."""
    from noetl.payloads.caches import SHARED_ROOT

    try:
        budget = settings_of().payloads.shared_memory
    except NoetlError:  # said by another check
        budget = Settings().payloads.shared_memory
    if not budget:
        return Finding(what="memory", state="ok", detail="tables are not shared: payloads.shared_memory is 0")
    if not SHARED_ROOT.is_dir() or not os.access(SHARED_ROOT, os.W_OK | os.X_OK):
        return Finding(what="memory", state="ok", detail=f"tables are not shared: {SHARED_ROOT} cannot be written here")
    size = shutil.disk_usage(SHARED_ROOT).total
    detail = f"{SHARED_ROOT} has {size / (1 << 20):.0f} MiB, tables may take {format_size(budget)}"
    fix = "make it larger (containers: --shm-size), or lower payloads.shared_memory" if size < budget else None
    return Finding(what="memory", state="warning" if fix else "ok", detail=detail, fix=fix)


def _clock() -> Finding:
    now = time.time()
    if now < _EARLIEST:
        return Finding(what="clock", state="bad", detail=time.strftime("%F %T", time.gmtime(now)), fix="set the clock")
    return Finding(what="clock", state="ok", detail=time.strftime("%F %T UTC", time.gmtime(now)))


def _java() -> Finding:
    from noetl.data.session.java import find_java

    try:
        java = find_java()
    except NoetlError as error:
        return Finding(what="java", state="warning", detail=error.message, fix=error.hint)
    return Finding(what="java", state="ok", detail=f"{java.version} at {java.program}")


def _spark() -> Finding:
    from noetl.data.session.distribution import need_spark, spark_home

    try:
        return Finding(what="spark", state="ok", detail=f"{need_spark()} at {spark_home()}")
    except NoetlError as error:
        return Finding(what="spark", state="warning", detail=error.message, fix=error.hint)
