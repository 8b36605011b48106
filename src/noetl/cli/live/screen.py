"""The part of a terminal that is drawn over and over while a run goes on."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.cli.live.board import Board
from noetl.cli.live.drawing import Line, draw
from noetl.cli.output import console, unheeded

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["is_possible", "shown"]

_PATIENCE = 0.15  # a run that is over sooner needs no moving picture
_INTERVAL = 0.1
_TALLEST = 40
_BELOW = 2  # lines of the terminal that are left to others


@asynccontextmanager
async def shown(board: Board) -> AsyncIterator[None]:
    """Draw the board on standard error, ten times a second, for as long as this is open; its end stays there."""
    drawing = asyncio.create_task(_keep_drawing(board))
    try:
        yield
    finally:
        drawing.cancel()
        await asyncio.gather(drawing, return_exceptions=True)
        screen = console(err=True)
        with unheeded():
            screen.print(_picture(board, screen, over=True))


async def _keep_drawing(board: Board) -> None:
    """Drawing takes a millisecond or two. It happens between events, never in the middle of one."""
    await asyncio.sleep(_PATIENCE)
    from rich.live import Live

    screen = console(err=True)
    # What others print to standard error meanwhile appears above the picture. Standard output is not ours.
    with Live(
        _picture(board, screen), console=screen, auto_refresh=False, transient=True, redirect_stdout=False
    ) as live:
        while True:
            await asyncio.sleep(_INTERVAL)
            live.update(_picture(board, screen), refresh=True)


def _picture(board: Board, screen: Console, *, over: bool = False) -> RenderableType:
    from rich.console import Group

    width, height = screen.size
    lines = draw(board, width=width, height=min(height - _BELOW, _TALLEST), now=time.monotonic(), over=over)
    return Group(*_texts(lines))


def _texts(lines: Iterable[Line]) -> Iterable[RenderableType]:
    from rich.text import Text

    for line in lines:
        yield Text.assemble(*line, no_wrap=True, overflow="ellipsis")


def is_possible() -> bool:
    """Whether standard error is a terminal on which something can be drawn twice."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "")
