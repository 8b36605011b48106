"""noetl export: write an execution's log to a file."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from noetl.kernel.event import Envelope
    from noetl.kernel.tail import Stream
    from noetl.runtime.wiring import Embedded

__all__ = ["command"]

_PAGE = 2000


@click.command(epilog="Example: noetl export 318485246779594112 --format feather --out run.feather")
@click.argument("execution", metavar="ID")
@click.option("--format", "format_", type=click.Choice(["jsonl", "feather"]), default="jsonl", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="File to write  [standard output]")
@common
def command(
    execution: str, format_: str, out: Path | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Write the log of an execution (or of another root stream) to a file.

    The file proves itself: anyone can check its hash chain, and import it into another ledger, where
    it gives the same state and the same checksums.
    """
    return run_async(_export(execution, format_, out, home, tenant, as_json))


async def _export(
    execution: str, format_: str, out: Path | None, home: Path | None, tenant: str | None, as_json: bool
) -> None:
    from noetl.runtime.wiring import open_embedded

    if out is None and (format_ == "feather" or as_json):
        raise InvalidInput("this needs a file to write to", hint="add --out FILE")
    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        root = await find_root(embedded, execution, settings)
        if out is None:
            await _to_stdout(embedded, root)
            return
        count = await _to_file(embedded, root, out, format_)
    if as_json:
        size, digest = await asyncio.to_thread(_measure, out)
        document = {"execution_id": execution, "events": count, "format": format_, "file": str(out)}
        print_json({**document, "bytes": size, "sha256": digest})
    else:
        note(f"Exported {count} events to {out}")


def _measure(path: Path) -> tuple[int | None, str | None]:
    if not path.is_file():
        return None, None  # a pipe or a device: what went in is gone
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


async def _to_file(embedded: Embedded, root: Stream, out: Path, format_: str) -> int:
    from noetl.archive.exchange import open_log

    count = 0
    with open_log(out, format_) as log:
        async for page in _pages(embedded, root):
            await asyncio.to_thread(log.write, page)
            count += len(page)
    return count


async def _to_stdout(embedded: Embedded, root: Stream) -> None:
    from noetl.archive.jsonl import line_of

    async for page in _pages(embedded, root):
        sys.stdout.buffer.writelines(map(line_of, page))
    sys.stdout.buffer.flush()


async def _pages(embedded: Embedded, root: Stream) -> AsyncIterator[list[Envelope]]:
    after = 0
    while page := await embedded.ledger.read_root(root, after_position=after, limit=_PAGE):
        yield [item.event for item in page]
        after = page[-1].position
