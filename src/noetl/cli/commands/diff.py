"""noetl diff: what changed between two moments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.cutoffs import moment_of
from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import leaves, print_json, readable, with_text_ids

if TYPE_CHECKING:
    from noetl.kernel.fold import State
    from noetl.kernel.tail import Stream
    from noetl.replay.diff import Change
    from noetl.runtime.wiring import Embedded

__all__ = ["command"]

_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_WIDTH = 60


@click.command(epilog="Example: noetl diff 318485246779594112 --from 40 --to 90")
@click.argument("execution", metavar="ID")
@click.option(
    "--from", "from_", required=True, metavar="A", help="A position (0: before anything), event:ID, or a time."
)
@click.option("--to", "to", metavar="B", help="The same  [the end]")
@common
def command(
    execution: str, from_: str, to: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Show what changed between two moments of an execution, per surface, row and field."""
    return run_async(_diff(execution, from_, to, home, tenant, as_json))


async def _diff(
    execution: str, from_: str, to: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> None:
    from noetl.replay.diff import diff
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        root = await find_root(embedded, execution, settings)
        before = await _state_at(embedded, root, from_)
        after = await _state_at(embedded, root, to)
    changes = list(diff(before, after))
    if as_json:
        print_json({"execution_id": execution, "from": from_, "to": to, "changes": _by_surface(changes, after)})
    else:
        _show(changes)


async def _state_at(embedded: Embedded, root: Stream, moment: str | None) -> State:
    from noetl.kernel.fold import new_state
    from noetl.replay.service import Cutoff

    if moment == "0":
        return new_state(root.stream_id)
    return (await embedded.replayer.replay(root, moment_of(moment) if moment else Cutoff())).state


def _by_surface(changes: list[Change], state: State) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in state.surfaces}
    for change in changes:
        fields = {name: with_text_ids({name: was})[name] for name, (was, _) in change.fields.items()}
        after = {name: with_text_ids({name: now})[name] for name, (_, now) in change.fields.items()}
        both = {name: {"before": fields[name], "after": after[name]} for name in change.fields}
        found[change.surface].append({"row": change.row, "kind": change.kind, "fields": both})
    return found


def _show(changes: list[Change]) -> None:
    if not changes:
        click.echo("Nothing changed.")
    surface = None
    for change in changes:
        if change.surface != surface:
            surface = change.surface
            click.secho(surface, bold=True)
        mark, colour = _MARKS[change.kind]
        click.secho(f"  {mark} {readable(change.row)}", fg=colour)
        for field, (before, after) in change.fields.items():
            for name, was, now in leaves(field, before, after):
                click.echo(f"      {readable(name)}: {_step(was, now)}")


def _step(was: Any, now: Any) -> str:
    return readable(now, _WIDTH) if was is None else f"{readable(was, _WIDTH)} -> {readable(now, _WIDTH)}"
