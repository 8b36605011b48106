"""Many small files into fewer large ones, without a moment in which an event is missing or there twice.

Only files that follow one another are put together, so that the files of a part never overlap: read one after the
other they give each stream's events in order.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa

from noetl.data.lake.layout import Part
from noetl.data.lake.log import File, Lake
from noetl.data.lake.reading import check_content, read_file
from noetl.data.lake.writing import write_piece
from noetl.data.source.events import POSITION, ROOT
from noetl.errors import Conflict
from noetl.kernel.time import parse_time

__all__ = ["Compacted", "Vacuumed", "compact", "vacuum"]

TARGET_BYTES = 64 << 20
_COMMIT_BYTES = 1 << 30
_TRIES = 8
Tell = Callable[[str, int], None]


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What was put together."""

    commits: int = 0
    before: int = 0
    """How many files were replaced,"""
    after: int = 0
    """by how many."""
    rows: int = 0


def compact(
    lake: Lake, *, target: int = TARGET_BYTES, least: int = 2, tell: Tell = lambda _phase, _count: None
) -> Compacted:
    """Put small files together, up to about `target` bytes each; `least` is how many files are worth it.

    Commits every GiB or so, and each commit changes all readers from the old files to the new at once. Raises Damaged
    for a file that is not what was committed: it must not become part of another.
    """
    done = Compacted()
    for runs in _shares(list(_runs(lake.files(), target, least))):
        written = []
        for run in runs:
            written.append(_merged(lake, run))
            tell("files put together", done.before + sum(map(len, runs[: len(written)])))
        old = [file for run in runs for file in run]
        if not _replace(lake, written, old):
            break
        done = Compacted(
            commits=done.commits + 1,
            before=done.before + len(old),
            after=done.after + len(written),
            rows=done.rows + sum(file.rows for file in old),
        )
    return done


def _replace(lake: Lake, new: list[File], old: list[File]) -> bool:
    """Commit; False if somebody else has replaced one of the old files meanwhile, whose work is as good."""
    for _ in range(_TRIES):
        known = {file.path for file in lake.files()}
        if not all(file.path in known for file in old):
            break
        try:
            lake.compact(new, old, now=time.time_ns() // 1000)
        except Conflict:
            continue  # somebody has appended
        return True
    for file in new:
        lake.place(file).unlink(missing_ok=True)
    return False


def _runs(files: Iterable[File], target: int, least: int) -> Iterator[list[File]]:
    """Neighbours of one part that are worth being put together."""
    ordered = sorted(files, key=lambda file: (part_of(file), file.first_position))
    for _, group in itertools.groupby(ordered, part_of):
        run: list[File] = []
        for file in group:
            if run and sum(one.bytes for one in run) + file.bytes > target:
                yield from [run] if len(run) >= least else []
                run = []
            run.append(file)
        yield from [run] if len(run) >= least else []


def _shares(runs: list[list[File]]) -> Iterator[list[list[File]]]:
    """Runs that are committed together."""
    share: list[list[File]] = []
    size = 0
    for run in runs:
        share.append(run)
        size += sum(file.bytes for file in run)
        if size >= _COMMIT_BYTES:
            yield share
            share, size = [], 0
    if share:
        yield share


def part_of(file: File) -> Part:
    """Which tenant, day and bucket a file is of."""
    return Part(file.tenant, file.date, file.bucket)


def _merged(lake: Lake, files: list[File]) -> File:
    for file in files:
        check_content(lake, file)
    tables = [read_file(lake, file) for file in files]
    rows = pa.concat_tables(tables, promote_options="default").sort_by([(ROOT, "ascending"), (POSITION, "ascending")])
    return write_piece(lake.path, part_of(files[0]), rows, lake.snapshot().commit + 1)


class Vacuumed(msgspec.Struct, frozen=True, kw_only=True):
    """Files that are no part of the lake."""

    removed: int = 0
    bytes: int = 0
    young: int = 0
    """Those that are left for now: somebody may still read or commit them."""


def vacuum(lake: Lake, *, grace: float, now: int | None = None, delete: bool = True) -> Vacuumed:
    """Delete files that no reader needs: replaced, or left behind by a run that was killed, `grace` seconds ago."""
    moment = time.time_ns() // 1000 if now is None else now
    replaced = {path: parse_time(commit.committed_at) for commit in lake.commits() for path in commit.remove}
    known = {file.path for file in lake.files()}
    found = Vacuumed()
    for place in sorted((lake.path / "events").rglob("*")):
        path = str(place.relative_to(lake.path))
        if path in known or place.is_dir():
            continue
        stat = place.stat()
        if moment - replaced.get(path, stat.st_mtime_ns // 1000) < grace * 1_000_000:
            found = msgspec.structs.replace(found, young=found.young + 1)
            continue
        if delete:
            place.unlink(missing_ok=True)
        found = msgspec.structs.replace(found, removed=found.removed + 1, bytes=found.bytes + stat.st_size)
    return found
