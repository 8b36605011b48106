"""What a command prints: one JSON document, or something for eyes."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.kernel.plain import with_text_ids

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "leaves", "note", "print_json", "readable", "status_style", "table", "unheeded", "with_text_ids"]

_STATUS_STYLES = {
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "ABANDONED": "yellow",
    "RUNNING": "cyan",
    "PENDING": "dim",
}
_NUMBERS = ("position", "events", "rows", "row_count", "version", "attempts", "claims", "committed", "abandoned",
            "total", "success", "failed", "event_count", "frame_index")  # fmt: skip
_WHOLE = ("execution", "event")  # a cut id is of no use to anybody
_ID_WIDTH = 18
_PIPE_WIDTH = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def print_json(document: Any) -> None:
    """One document on standard output: indented for a person, on one line in a pipe."""
    data = msgspec.json.encode(document)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    click.echo(data.decode())


def console(*, err: bool = False) -> Console:
    """A rich console; rich is loaded only for those who look."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    return Console(stderr=err, highlight=False, width=None if stream.isatty() else _PIPE_WIDTH)


def note(text: str) -> None:
    """A line for the person, never in the way of a pipe."""
    click.echo(text, file=sys.stderr)  # by name, because click would look through what rich has put in its place


@contextlib.contextmanager
def unheeded() -> Iterator[None]:
    """For what is said on the way: that nobody reads it any more must not stop what it is about."""
    try:
        yield
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Container[str] = _NUMBERS
) -> None:
    """A table on standard output; the columns of `right` are numbers. Text is data, never markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", header_style="bold")
    for name in columns:
        whole = name in _WHOLE or name.endswith("_id")
        grid.add_column(name, no_wrap=True, overflow="ellipsis", min_width=_ID_WIDTH if whole else None,
                        justify="right" if name in right else "left")  # fmt: skip
    for row in rows:
        grid.add_row(*[Text(readable(cell), style=status_style(cell)) for cell in row])
    console().print(grid)


def status_style(value: Any) -> str:
    """The colour of a status; nothing for anything else."""
    return _STATUS_STYLES.get(value, "") if isinstance(value, str) else ""


def readable(value: Any, width: int | None = None) -> str:
    """A value of an event as a terminal may see it: control characters are shown, never obeyed."""
    text = "-" if value is None else value if isinstance(value, str) else _json(value)
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def leaves(name: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two values differ, down to the fields inside mappings: the dotted name, and the value on each side."""
    if not (isinstance(was, Mapping) and isinstance(now, Mapping)):
        yield name, was, now
        return
    for key in sorted(was.keys() | now.keys()):
        if _json(was.get(key)) != _json(now.get(key)):  # 1, 1.0 and true are equal in Python, but not in a row
            yield from leaves(f"{name}.{key}", was.get(key), now.get(key))


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
