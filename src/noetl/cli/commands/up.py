"""noetl up: the whole stack on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.exits import OK, UNAVAILABLE
from noetl.cli.options import common, settings_of
from noetl.cli.output import note, print_json

if TYPE_CHECKING:
    from noetl.deploy.local.control import Standing
    from noetl.deploy.local.place import Place
    from noetl.deploy.local.record import Stack
    from noetl.settings import Settings

__all__ = ["command"]

_MOST_PORT = 65535
_MOST = 64


@click.command(epilog="Example: noetl up --workers 4")
@click.option("--workers", type=click.IntRange(1, _MOST), metavar="N", help="How many workers; 2 at first.")
@click.option("--projectors", type=click.IntRange(1, _MOST), metavar="N", help="How many projectors; 1 at first.")
@click.option("--spark/--no-spark", "spark", default=None, help="Whether there is a worker for pool spark.")
@click.option("--port", type=click.IntRange(1, _MOST_PORT), metavar="N", help="Where the server listens; 8082 if free.")
@click.option("--context", "name", default="stack", show_default=True, metavar="NAME",
              help="The context by which other commands find it.")  # fmt: skip
@click.option("--storage-only", is_flag=True, help="Only Postgres and NATS, to restore a backup into them.")
@click.option("--status", is_flag=True, help="Only say how it is; exits 3 if not all of it is well.")
@click.option("--foreground", is_flag=True, help="Stay, and stop everything at an interrupt.")
@click.option("--background", is_flag=True, hidden=True, help="Be the supervisor.")
@common
def command(
    workers: int | None,
    projectors: int | None,
    spark: bool | None,
    port: int | None,
    name: str,
    storage_only: bool,
    status: bool,
    foreground: bool,
    background: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Start the whole stack as processes of this machine, without containers, and watch over them.

    That is Postgres, NATS, a server, a publisher, projectors and workers. What dies is started again. Everything is on
    the loopback address and in one directory, and stays there when it is stopped. What runs already goes on; with
    another number of workers or projectors it is changed meanwhile.
    """
    from noetl.cli import stacks
    from noetl.deploy.local.control import Asked, ask_for, bring_up, one_at_a_time, standing

    if tenant is not None:
        os.environ["NOETL_TENANT__ID"] = tenant  # for everything that is started here
    place, settings = stacks.place_of(home), settings_of(tenant)
    if background:
        return _supervise(place, settings)
    if status:
        return _say_status(standing(place), place, as_json)
    stacks.check_context(name, place)
    asked = Asked(workers=workers, projectors=projectors, spark=spark, storage_only=storage_only, port=port)
    with one_at_a_time(place):
        before = standing(place)
        stack = ask_for(place, asked, Path.cwd())
        if not foreground:
            with stacks.shown(quiet=as_json) as show, _told_if_interrupted():
                bring_up(place, stack, show)
            _introduce(place, name)
        found = standing(place)
    if foreground:
        return _in_foreground(place, settings, name, as_json)
    assert found is not None
    ran = before is not None and before.supervisor == found.supervisor
    if as_json:
        print_json(stacks.document_of(found))
    else:
        stacks.print_parts(found.report)
        stacks.tell_use(place, found, ran=ran)
    return OK


@contextlib.contextmanager
def _told_if_interrupted() -> Iterator[None]:
    """Whoever does not want to wait should know that nobody else stops."""
    try:
        yield
    except KeyboardInterrupt:
        note("it goes on without you: noetl up waits for it again, noetl down stops it")
        raise


def _introduce(place: Place, name: str) -> Stack:
    """Let others find it: a context, and notes for shells."""
    import msgspec

    from noetl.cli import stacks
    from noetl.deploy.local.control import write_notes
    from noetl.deploy.local.record import save_stack

    stack = write_notes(place)
    if stack.plan.storage_only:
        return stack
    former = stacks.add_context(name, place, stack)
    stack = msgspec.structs.replace(stack, context=name, former_context=former)
    save_stack(place, stack)
    return stack


def _say_status(found: Standing | None, place: Place, as_json: bool) -> int:
    from noetl.cli import stacks

    if found is None:
        if as_json:
            print_json({"status": "down", "home": str(place.home), "pids": {}})
        else:
            note(f"there is no stack in {place.home}; noetl up makes one")
        return UNAVAILABLE
    if as_json:
        print_json(stacks.document_of(found))
    elif found.supervisor is not None:
        stacks.print_parts(found.report)
        note(f"{'well' if found.is_well else 'not well'}, at {found.stack.url}, in {found.stack.home}")
    elif found.pids:
        names = ", ".join(found.pids)
        note(f"its supervisor is gone, and {names} run on; noetl up watches over them again, noetl down stops them")
    else:
        note(f"it is down, in {found.stack.home}")
    return OK if found.is_well else UNAVAILABLE


def _supervise(place: Place, settings: Settings) -> int:
    """Be the process that others leave behind."""
    import time

    from noetl.deploy.local.supervisor import Supervisor, supervising

    def tell(name: str, what: str) -> None:
        note(f"{time.strftime('%FT%TZ', time.gmtime())} {name}: {what}")

    supervisor = Supervisor(place, settings, tell)
    with _hearing(supervisor.stop, supervisor.reload), supervising(place):
        supervisor.run()
    return OK


def _in_foreground(place: Place, settings: Settings, name: str, as_json: bool) -> int:
    from noetl.cli import stacks
    from noetl.deploy.local.control import standing
    from noetl.deploy.local.supervisor import Supervisor, supervising

    def tell(part: str, what: str) -> None:
        if not as_json:
            note(f"{part}: {what}")

    def up() -> None:
        _introduce(place, name)
        found = standing(place)
        assert found is not None
        if as_json:
            print_json(stacks.document_of(found))
        else:
            note(f"up in {found.report.seconds:.1f} s at {found.stack.url}; an interrupt stops it")

    supervisor = Supervisor(place, settings, tell)
    with _hearing(supervisor.stop, supervisor.reload), supervising(place):
        supervisor.run(up)
    return OK


@contextlib.contextmanager
def _hearing(stop: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Do these at signals, instead of what they do by themselves."""
    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
    former = {number: signal.signal(number, lambda *_, does=does: does()) for number, does in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
