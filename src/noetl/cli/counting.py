"""How far a long piece of work has come: one line that moves on a terminal, and nothing in a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import click

from noetl.cli.output import unheeded

__all__ = ["counted", "size"]

_EVERY_SECONDS = 0.1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_KIBI = 1024


@contextlib.contextmanager
def counted(*, quiet: bool = False) -> Iterator[Callable[[str, int], None]]:
    """Called with what is done and how often it was; the line goes when the work has ended."""
    if quiet or not sys.stderr.isatty():
        yield lambda _phase, _count: None
        return
    shown_at = 0.0

    def show(phase: str, count: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at < _EVERY_SECONDS:
            return
        shown_at = time.monotonic()
        with unheeded():
            click.echo(f"\r\x1b[K  {phase}: {count}", nl=False, err=True)

    try:
        yield show
    finally:
        with unheeded():
            click.echo("\r\x1b[K", nl=False, err=True)


def size(count: int) -> str:
    """Bytes for eyes: three digits are enough, and four where they stand before the point."""
    amount, unit = float(count), 0
    while amount >= _KIBI and unit < len(_UNITS) - 1:
        amount, unit = amount / _KIBI, unit + 1
    if unit == 0:
        return f"{count} B"
    return f"{amount:.0f} {_UNITS[unit]}" if amount >= 999.5 else f"{amount:.3g} {_UNITS[unit]}"
