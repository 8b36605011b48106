"""What a person sees while a playbook runs: a line for each step, and why it failed if it did."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from noetl.cli.output import readable
from noetl.kernel.time import parse_time

if TYPE_CHECKING:
    from noetl.cli.faults import Fault
    from noetl.kernel.event import Envelope
    from noetl.runtime.embedded.runner import Finished

__all__ = ["Progress"]


class _Place(NamedTuple):
    """A step of one execution; steps of a playbook that was called are shown further in."""

    execution_id: int | None
    step: str
    called: bool

    @property
    def indent(self) -> str:
        return "  " if self.called else ""


class Progress:
    """Follows the events of a run. Lines go to standard error, so a pipe gets only the result."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._begun: dict[_Place, str] = {}
        self._live = sys.stderr.isatty()
        self._loops: dict[_Place, tuple[int, int]] = {}

    def notice(self, events: Sequence[Envelope]) -> None:
        """Show what these events tell."""
        if self._quiet:
            return
        for event in events:
            step = _Place(event.execution_id, event.node_name or "", event.parent_execution_id is not None)
            if event.event_type in ("command.issued", "loop.opened"):
                self._begun.setdefault(step, event.event_time)
            if event.event_type == "loop.opened":
                self._loops[step] = (0, event.payload.get("total", 0))
            elif event.event_type == "command.completed" and step in self._loops:
                self._count(step)
            elif event.event_type == "step.exit":
                self._exited(event, step)
            elif event.event_type == "step.skipped":
                self._line("-", "yellow", step, "skipped")

    def conclude(self, document: dict[str, Any], finished: Finished, fault: Fault | None) -> None:
        """The last lines: how it ended, where it went wrong, and what to do next."""
        colour = {"COMPLETED": "green", "FAILED": "red"}.get(finished.status, "yellow")
        click.secho(finished.status, fg=colour, bold=True, err=True, nl=False)
        took = document.get("duration_ms")
        click.echo(f"  {document['execution_id']}  {took} ms, {document['events']} events", err=True)
        if fault is not None:
            self._explain(fault, document["execution_id"])
        elif finished.result is not None:
            click.echo(msgspec.json.format(msgspec.json.encode(finished.result), indent=2).decode())

    def _explain(self, fault: Fault, execution_id: str) -> None:
        click.secho(f"  step '{readable(fault.step)}': {fault.code}: {readable(fault.message)}", fg="red", err=True)
        click.echo(f"  {fault.file}:{fault.line}", err=True)
        click.secho(f"  {fault.line:>5} | ", dim=True, err=True, nl=False)
        click.echo(readable(fault.text), err=True)
        click.secho("  try: ", fg="cyan", err=True, nl=False)
        click.echo(fault.advice.format(id=execution_id), err=True)

    def _exited(self, event: Envelope, step: _Place) -> None:
        failed = event.status == "FAILED"
        took = (parse_time(event.event_time) - parse_time(self._begun.pop(step, event.event_time))) // 1000
        total = self._loops.pop(step, None)
        count = f"  {total[1]} iteration{'' if total[1] == 1 else 's'}" if total else ""
        self._line("✗" if failed else "✓", "red" if failed else "green", step, f"{took} ms{count}")

    def _count(self, step: _Place) -> None:
        done, total = self._loops[step]
        self._loops[step] = (done + 1, total)
        if self._live:
            click.echo(f"\r  {step.indent}… {readable(step.step)}  {done + 1}/{total}", err=True, nl=False)

    def _line(self, mark: str, colour: str, step: _Place, text: str) -> None:
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)
        click.secho(f"  {step.indent}{mark} ", fg=colour, err=True, nl=False)
        click.echo(f"{readable(step.step)}  {text}", err=True)
