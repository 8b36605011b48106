"""What a person sees while a playbook runs: a moving picture on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.output import note, readable, status_style, unheeded

if TYPE_CHECKING:
    from noetl.cli.faults import Fault
    from noetl.cli.live.board import Board, EndedStep
    from noetl.kernel.event import Envelope
    from noetl.runtime.embedded.runner import Finished
    from noetl.runtime.notices import Notice

__all__ = ["Progress"]

_MOST_LINES = 40
_MOST_MILLISECONDS = 10_000


class Progress:
    """Follows a run. Everything goes to standard error, so a pipe gets only the result.

    A terminal gets a picture, anything else a line for each step that has ended; with `verbose` both get a line
    for each event. `quiet` is for scripts, which get nothing unless they ask for events.
    """

    def __init__(self, *, quiet: bool, verbose: bool = False) -> None:
        self._verbose = verbose
        self._board = None if quiet else _new_board()
        self._live = self._board is not None and not verbose and _is_live_possible()

    def shown(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Show the run for as long as this is open."""
        if self._board is None or not self._live:
            return contextlib.nullcontext()
        from noetl.cli.live import screen

        return screen.shown(self._board)

    def notice(self, events: Sequence[Envelope]) -> None:
        """Show what these events tell."""
        with unheeded():
            for event in events:
                if self._verbose:
                    _print_event(event)
                elif self._board is not None:
                    ended = self._board.apply(event)
                    if ended is not None and not self._live:
                        _print_step(ended)
                    elif not self._live and event.event_type == "stage.started" and event.payload.get("ui"):
                        note(f"  {readable(event.node_name or '')} runs on Spark: {readable(event.payload['ui'])}")

    @property
    def knows_nothing(self) -> bool:
        """Whether this is to be shown, and nothing of it was seen yet: it began in another process."""
        return self._board is not None and not self._verbose and self._board.root is None

    def recall(self, events: Sequence[Envelope]) -> None:
        """Learn what happened before; nothing of it is said again."""
        assert self._board is not None
        for event in events:
            self._board.apply(event)
        self._board.recall()

    def hear(self, notice: Notice) -> None:
        """Show what a worker says."""
        if self._board is not None:
            self._board.hear(notice)

    def conclude(self, document: dict[str, Any], finished: Finished, fault: Fault | None) -> None:
        """The last lines: how it ended, where it went wrong, and what to do next."""
        said = f"  {document['execution_id']}  {_took(document.get('duration_ms'))}, {document['events']} events"
        with unheeded():
            click.secho(finished.status, fg=status_style(finished.status) or None, bold=True, err=True, nl=False)
            click.echo(said, err=True)
            if fault is not None:
                from noetl.cli.explaining import explain

                explain(fault)
        if fault is None and finished.status == "COMPLETED" and finished.result is not None:
            _print_result(finished.shown, document["execution_id"])


def _print_result(result: Any, execution_id: str) -> None:
    """All of it into a pipe; on a terminal no more than fits beside what was said before, and rows as a table."""
    if sys.stdout.isatty() and isinstance(result, dict) and "ref" in result and result.get("preview"):
        from noetl.cli.rows import print_rows

        print_rows(result, "")
        note(f"all that is known of these rows: noetl result {execution_id}")
        return
    text = msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
    lines = text.split("\n")
    if not sys.stdout.isatty() or len(lines) <= _MOST_LINES:
        click.echo(text)
        return
    click.echo("\n".join(lines[:_MOST_LINES]))
    note(f"… {len(lines) - _MOST_LINES} lines more: noetl result {execution_id}")


def _new_board() -> Board:
    from noetl.cli.live.board import Board  # nothing that scripts should wait for

    return Board()


def _is_live_possible() -> bool:
    from noetl.cli.live import screen

    return screen.is_possible()


def _print_step(step: EndedStep) -> None:
    from noetl.cli.live.drawing import MARKS, tally

    mark, colour = MARKS[step.state]
    said = _took(step.took_ms) if step.state != "skipped" else "skipped"
    if more := tally(step):
        said += f"  {more}"
    click.secho(f"  {'  ' * step.depth}{mark} ", fg=colour, err=True, nl=False)
    click.echo(f"{readable(step.name)}  {said}", err=True)


def _took(milliseconds: int | None) -> str:
    """Milliseconds as long as one can read them, then as people say it."""
    from noetl.cli.live.drawing import duration

    if milliseconds is None or milliseconds < _MOST_MILLISECONDS:
        return f"{milliseconds or 0} ms"
    return duration(milliseconds / 1000)


def _print_event(event: Envelope) -> None:
    click.secho(event.event_time[11:23], dim=True, err=True, nl=False)
    said = f"  {event.event_type:<22} {event.node_name or '':<24} {event.status or ''}".rstrip()
    click.echo(readable(said), err=True)
