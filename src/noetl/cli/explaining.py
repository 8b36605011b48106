"""A fault in words, for whoever has to mend it."""

from __future__ import annotations

import click

from noetl.cli.diagnostics import cells, window
from noetl.cli.faults import Fault
from noetl.cli.output import readable

__all__ = ["explain"]

_BEFORE, _AFTER = 2, 1


def explain(fault: Fault) -> None:
    """Say on standard error what failed, where, and what to try. A failed call goes on with what failed in it."""
    here: Fault | None = fault
    indent = "  "
    while here is not None:
        _say_what(here, indent)
        _show_source(here, indent)
        for note in here.notes:
            click.echo(f"{indent}{readable(note)}", err=True)
        if here.cause is not None:
            click.echo(f"{indent}because in execution {here.cause.execution_id}:", err=True)
        here, indent = here.cause, indent + "  "
    _advise(_innermost(fault))
    if fault.cause is not None:
        _advise(fault)


def _innermost(fault: Fault) -> Fault:
    while fault.cause is not None:
        fault = fault.cause
    return fault


def _say_what(fault: Fault, indent: str) -> None:
    task = f", task '{readable(fault.task)}'" if fault.task else ""
    first, *rest = fault.message.splitlines() or [""]
    click.secho(f"{indent}step '{readable(fault.step)}'{task}: {fault.code}: {readable(first)}", fg="red", err=True)
    for line in rest:
        click.secho(f"{indent}  {readable(line)}".rstrip(), fg="red", err=True)


def _show_source(fault: Fault, indent: str) -> None:
    place = fault.place
    column = f":{place.column}" if place.column else ""
    click.echo(f"{indent}{readable(fault.file)}:{place.line}{column}", err=True)
    for number in range(max(1, place.line - _BEFORE), min(len(fault.lines), place.line + _AFTER) + 1):
        own = number == place.line
        text, start = window(fault.lines[number - 1], (place.column or 1) if own else 1)
        click.secho(f"{indent}{'>' if own else ' '}{number:>5} | ", dim=not own, err=True, nl=False)
        click.secho(readable(text), dim=not own, err=True)
        if own and place.column:
            before = " " * cells(readable(text[: start - 1]))
            mark = "^" * max(1, cells(readable(text[start - 1 : start - 1 + place.width])))
            click.secho(f"{indent} {'':>5} | ", dim=True, err=True, nl=False)
            click.secho(before + mark, fg="red", bold=True, err=True)


def _advise(fault: Fault) -> None:
    for number, advice in enumerate(fault.advice):
        click.secho("  try: " if number == 0 else "       ", fg="cyan", err=True, nl=False)
        click.echo(advice.format(id=fault.execution_id), err=True)
