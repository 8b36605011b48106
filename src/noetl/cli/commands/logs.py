"""noetl logs: what the tasks of an execution have printed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from noetl.kernel.event import Recorded
    from noetl.kernel.tail import Stream
    from noetl.runtime.logs import LogLine
    from noetl.runtime.wiring import Embedded

__all__ = ["command"]

_SCAN = 2000
_POLL_SECONDS = 0.2
_PLATFORM = "noetl"
_TRUNCATED = "… it printed more than is kept"


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines, and how."""

    step: str | None
    task: str | None
    tail: int | None
    as_json: bool


@click.command(epilog="Example: noetl logs 318485246779594112 --step load --tail 20")
@click.argument("execution", metavar="ID")
@click.option("--step", metavar="STEP", help="Only this step.")
@click.option("--task", metavar="TASK", help="Only this task of a pipeline.")
@click.option("--tail", type=click.IntRange(1, 100_000), metavar="N", help="Only the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines are printed, until the execution has ended.")
@common
def command(
    execution: str,
    step: str | None,
    task: str | None,
    tail: int | None,
    follow: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Show what the tasks of an execution have printed, and what the platform warned about, by time.

    Lines of the platform are marked `noetl`. Secrets are masked before anything is kept, and of one attempt of a
    task at most 1 MiB is. With --follow, --json gives JSON lines.
    """
    wanted = _Wanted(step=step, task=task, tail=tail, as_json=as_json)
    return run_async(_logs(execution, wanted, follow, home, tenant))


async def _logs(execution: str, wanted: _Wanted, follow: bool, home: Path | None, tenant: str | None) -> None:
    from noetl.kernel.streams import execution_of
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    async with open_embedded(place, settings) as embedded:
        root = await find_root(embedded, execution, settings)
        execution_id = execution_of(root.stream_id)
        if execution_id is None:
            raise InvalidInput(f"'{execution}' is not an execution", hint="noetl list shows the executions there are")
        reading = _Reading(embedded, root, place.path, execution_id, wanted)
        await (_follow(reading, wanted) if follow else _show(reading, wanted, execution_id))


async def _show(reading: _Reading, wanted: _Wanted, execution_id: int) -> None:
    kept: deque[LogLine] = deque(maxlen=wanted.tail)
    at_once = wanted.tail is None and not wanted.as_json
    async for line in reading.lines():
        _print(line) if at_once else kept.append(line)
    if wanted.as_json:
        print_json({"execution_id": str(execution_id), "lines": list(kept), "damaged": reading.damaged})
        return
    for line in kept:
        _print(line)
    if not reading.count:
        note("nothing was printed")
    if reading.damaged:
        note(f"{reading.damaged} damaged lines were left out: a process was killed, or the disk was full")


async def _follow(reading: _Reading, wanted: _Wanted) -> None:
    """What is there, the last lines of it if only these are wanted; then what comes, up to the end."""
    ending = asyncio.create_task(reading.until_ended())
    try:
        tail, ended = wanted.tail, False
        while not ended:
            ended = ending.done()  # asked before reading: what was printed before the end is read after it
            shown: deque[LogLine] = deque([line async for line in reading.new_lines()], maxlen=tail)
            for line in shown:
                click.echo(msgspec.json.encode(line).decode()) if wanted.as_json else _print(line)
            tail = None
            await asyncio.wait([ending], timeout=_POLL_SECONDS)
        await ending
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


class _Reading:
    """The lines of one execution, from the file that keeps them and from the warnings in its events."""

    def __init__(self, embedded: Embedded, root: Stream, home: Path, execution_id: int, wanted: _Wanted) -> None:
        self._embedded = embedded
        self._root = root
        self._home = home
        self._execution_id = execution_id
        self._wanted = wanted
        self._after = 0
        self._warned: deque[LogLine] = deque()
        self.count = self.damaged = 0

    async def lines(self) -> AsyncIterator[LogLine]:
        """Everything, in the order of time."""
        position = 0
        while page := await self._embedded.ledger.read_root(self._root, after_position=position, limit=_SCAN):
            self._take_warnings(page)
            position = page[-1].position
        async for line in self.new_lines():
            yield line

    async def new_lines(self) -> AsyncIterator[LogLine]:
        """What has come since the last time."""
        from noetl.runtime.logs import read_logs

        more = True
        while more:
            page = await read_logs(
                self._home,
                self._root.tenant_id,
                self._execution_id,
                self._wanted.step,
                self._after,
                task=self._wanted.task,
            )
            self._after, more = page.after, page.more
            self.damaged += page.damaged
            for line in page.lines:
                while self._warned and self._warned[0].time <= line.time:
                    yield self._counted(self._warned.popleft())
                yield self._counted(line)
        while self._warned:
            yield self._counted(self._warned.popleft())

    async def until_ended(self) -> None:
        """Follow the events; returns with the one that ends the execution."""
        from noetl.kernel.streams import root_of
        from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type

        position = 0
        ended = False
        while page := await self._embedded.ledger.read_root(self._root, after_position=position, limit=_SCAN):
            self._take_warnings(page)
            ended = ended or any(canonical_type(item.event.event_type) in TERMINAL_TYPES for item in page)
            position = page[-1].position
        if ended:
            return
        async for item in self._embedded.ledger.subscribe(after_position=position):
            event = item.event
            if event.tenant_id == self._root.tenant_id and root_of(event.stream_id) == self._root.stream_id:
                self._take_warnings([item])
                if canonical_type(event.event_type) in TERMINAL_TYPES:
                    return

    def _take_warnings(self, page: Sequence[Recorded]) -> None:
        from noetl.runtime.logs import LogLine

        for item in page:
            event, warnings = item.event, item.event.payload.get("warnings")
            if not isinstance(warnings, list) or self._wanted.task or self._wanted.step not in (None, event.node_name):
                continue
            self._warned.extend(
                LogLine(
                    time=event.event_time, execution_id=str(self._execution_id), step=event.node_name or "", task="",
                    attempt=event.attempt or 1, stream=_PLATFORM, text=str(text),
                )
                for text in warnings
            )  # fmt: skip

    def _counted(self, line: LogLine) -> LogLine:
        self.count += 1
        return line


def _print(line: LogLine) -> None:
    """A line with its time and its origin before it: `12:00:01.500 load[3]/fetch#2  text`."""
    where = line.step if line.index is None else f"{line.step}[{line.index}]"
    if line.task not in ("", f"{line.step}_task"):
        where += f"/{line.task}"
    if line.attempt > 1:
        where += f"#{line.attempt}"
    colour = {"stderr": "red", _PLATFORM: "yellow"}.get(line.stream, "cyan")
    click.secho(f"{line.time[11:23]} ", dim=True, nl=False)
    click.secho(readable(where), fg=colour, nl=False)
    mark = f" {_PLATFORM}:" if line.stream == _PLATFORM else ""
    click.echo(f"{mark}  {_TRUNCATED if line.truncated else readable(line.text)}")
