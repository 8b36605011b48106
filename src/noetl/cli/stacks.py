"""A stack on a terminal: the table of its processes, and the context by which other commands find it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.contexts import Context, Contexts, contexts_file
from noetl.cli.output import console, note, unheeded
from noetl.errors import InvalidInput
from noetl.settings import resolve_home

if TYPE_CHECKING:
    from rich.table import Table

    from noetl.deploy.local.control import Standing
    from noetl.deploy.local.place import Place
    from noetl.deploy.local.record import Report, Stack, State

__all__ = [
    "add_context", "check_context", "document_of", "drop_context", "place_of", "print_parts", "shown", "tell_use",
    "use_former",
]  # fmt: skip

_MARKS = {
    "well": ("✓", "green"), "starting": ("…", "cyan"), "waiting": ("·", "dim"), "unwell": ("!", "yellow"),
    "restarting": ("↻", "yellow"), "stopped": ("·", "dim"),
}  # fmt: skip


def place_of(home: Path | None) -> Place:
    """The home of the stack that is meant: the one that was named, or `stack` in the home that everybody has."""
    from noetl.deploy.local.place import Place

    found = resolve_home(home, os.environ, Path.cwd())
    named = home is not None or os.environ.get("NOETL_HOME")
    return Place((found if named else found / "stack").absolute())


def document_of(standing: Standing) -> dict[str, Any]:
    """A stack for scripts: how to reach it, and who it consists of."""
    stack, report = standing.stack, standing.report
    pids = {**({"supervisor": standing.supervisor} if standing.supervisor else {}), **standing.pids}
    return {
        "status": "up" if standing.is_well else report.phase if report.phase != "up" else "unwell",
        "url": stack.url,
        "token": stack.token,
        "postgres": stack.postgres,
        "nats": stack.nats,
        "home": stack.home,
        "console": f"{stack.url}/",
        "pids": pids,
        "context": stack.context,
        "seconds": report.seconds,
        "parts": msgspec.to_builtins(report.parts),
    }


# --- For eyes ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Callable[[Report], None]]:
    """Something that shows reports as they come: a table that is drawn over on a terminal, lines elsewhere."""
    from noetl.cli.live import screen

    if quiet:
        yield lambda report: None
    elif not screen.is_possible():
        said: dict[str, str] = {}
        yield lambda report: _say_changes(report, said)
    else:
        from rich.live import Live

        with Live(console=console(err=True), refresh_per_second=10, transient=True, redirect_stdout=False) as live:
            yield lambda report: live.update(_table(report.parts))


def print_parts(report: Report) -> None:
    """The table, once."""
    console(err=True).print(_table(report.parts))


def _say_changes(report: Report, said: dict[str, str]) -> None:
    for part in report.parts:
        what = part.state if part.detail is None or part.state != "restarting" else f"{part.state}: {part.detail}"
        if (
            part.state in (("stopped",) if report.phase == "stopping" else ("well", "restarting"))
            and said.get(part.name) != what
        ):
            said[part.name] = what
            mark, colour = _MARKS[part.state]
            with unheeded():
                click.secho(f"  {mark} ", fg=None if colour == "dim" else colour, err=True, nl=False)
                click.echo(f"{part.name}  {what}", err=True)


def _table(parts: list[State]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for name in ("", "process", "state", "id", "restarts", ""):
        grid.add_column(name, justify="right" if name in ("id", "restarts") else "left", no_wrap=name != "")
    for part in parts:
        mark, style = _MARKS[part.state]
        grid.add_row(
            Text(mark, style=style), part.name, Text(part.state, style=style), str(part.pid or ""),
            str(part.restarts or ""), Text(part.detail or ""),
        )  # fmt: skip
    return grid


# --- The context ------------------------------------------------------------------------------------------


def check_context(name: str, place: Place) -> None:
    """Refuse to take the name of somebody else's server."""
    known = Contexts.load(contexts_file(os.environ)).contexts.get(name)
    if known is not None and known.token_file != str(place.token) and _exists(known.token_file):
        raise InvalidInput(
            f"context '{name}' is another server, {known.url}", hint="choose another name with --context NAME"
        )


def add_context(name: str, place: Place, stack: Stack) -> str | None:
    """Make the stack the current context; the one that was it before."""
    file = contexts_file(os.environ)
    contexts = Contexts.load(file)
    former = contexts.current if contexts.current != name else stack.former_context
    context = Context(url=stack.url, runtime="distributed", token_file=str(place.token))
    contexts.add(name, context, replace=True)
    contexts.current = name
    contexts.save(file)
    return former


def use_former(stack: Stack) -> str | None:
    """Go back to the context that was the current one before the stack was; its name, if it is used now."""
    file = contexts_file(os.environ)
    contexts = Contexts.load(file)
    if stack.context is None or contexts.current != stack.context:
        return None
    contexts.current = stack.former_context if stack.former_context in contexts.contexts else None
    contexts.save(file)
    return contexts.current or "local"


def drop_context(stack: Stack, place: Place) -> None:
    """Forget the context of a stack that is gone."""
    file = contexts_file(os.environ)
    contexts = Contexts.load(file)
    known = contexts.contexts.get(stack.context or "")
    if known is not None and known.token_file == str(place.token):
        del contexts.contexts[str(stack.context)]
        contexts.save(file)


def _exists(file: str | None) -> bool:
    return file is None or Path(file).exists()


def tell_use(place: Place, standing: Standing, *, ran: bool) -> None:
    """Where it is, and the next thing to do."""
    stack = standing.stack
    if stack.plan.storage_only:
        note(f"only Postgres and NATS run: source {place.environment} to reach them; noetl up starts the others")
        return
    note(f"{'is up' if ran else f'up in {standing.report.seconds:.1f} s'} at {stack.url}, in {stack.home}")
    note(f"noetl run FILE runs on it now (context {stack.context}); noetl down stops it")
