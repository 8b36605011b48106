"""noetl down: stop the stack of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.cli.exits import OK
from noetl.cli.options import common, settings_of
from noetl.cli.output import note, print_json
from noetl.errors import InvalidInput

__all__ = ["command"]


@click.command(epilog="Example: noetl down --purge")
@click.option("--now", is_flag=True, help="Do not wait for what is running; it goes on at the next start.")
@click.option("--purge", is_flag=True, help="Delete its database, its log, its keys and everything else, too.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
@common
def command(now: bool, purge: bool, yes: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Stop what noetl up has started: workers first, once they have finished what they had begun, the database last.

    It finds everything that runs, also when the supervisor was killed. What was not finished goes on at the next start.
    """
    from noetl.cli import stacks
    from noetl.deploy.local import control
    from noetl.deploy.local.record import load_stack

    place, settings = stacks.place_of(home), settings_of(tenant)
    stack = load_stack(place)
    if stack is None:
        if as_json:
            print_json({"stopped": [], "killed": [], "purged": False, "home": str(place.home)})
        else:
            note(f"there is no stack in {place.home}")
        return OK
    if purge and not yes:
        _ask(str(place.home), as_json)
    with control.one_at_a_time(place):
        with stacks.shown(quiet=as_json) as show:
            stopped, killed = control.bring_down(place, settings, now=now, show=show)
        context = stacks.use_former(stack)
        if purge:
            stacks.drop_context(stack, place)
            control.purge(place, stack)
    if as_json:
        print_json({"stopped": stopped, "killed": killed, "purged": purge, "home": stack.home})
        return OK
    note(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")
    if killed:
        note(f"these did not end by themselves, and were killed: {', '.join(killed)}")
    if context is not None:
        note(f"the current context is {context} again")
    if purge:
        note(f"deleted what was in {stack.home}")
    return OK


def _ask(home: str, as_json: bool) -> None:
    import sys

    if as_json or not sys.stdin.isatty():
        raise InvalidInput(f"this would delete all data of the stack in {home}", hint="add --yes to do so")
    click.confirm(f"Delete all data of the stack in {home}?", abort=True, err=True)
