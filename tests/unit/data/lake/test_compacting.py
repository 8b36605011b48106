"""Small files into large ones, and what is left of the small ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.lake import compacting
from noetl.data.lake.checking import verify
from noetl.data.lake.compacting import Vacuumed, compact, part_of, vacuum
from noetl.data.lake.layout import SCHEMA, batch_of
from noetl.data.lake.log import Lake
from noetl.data.lake.reading import Damaged, read_file
from noetl.data.lake.writing import append, write_piece
from noetl.kernel.time import parse_time
from tests.unit.data.lake.conftest import Record

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000


@pytest.fixture
def full(lake: Lake, record: Record) -> Lake:
    """A lake of ten commits and two days."""
    for number in range(10):
        append(lake, [batch_of(record(20, executions=range(1, 9), days=number == 6))], now=NOW)
    return lake


def lines(lake: Lake) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for file in lake.files():
        table = read_file(lake, file, ("position", "envelope"))
        found |= dict(zip(table["position"].to_pylist(), table["envelope"].to_pylist(), strict=True))
    return found


def test_neighbours_are_put_together_and_every_event_stays(full: Lake) -> None:
    before, old = lines(full), len(full.files())
    done = compact(full)
    assert (done.commits, done.before, done.rows) == (1, old, 200)
    parts = {(file.tenant, file.date, file.bucket) for file in full.files()}
    assert len(full.files()) == len(parts) == done.after
    assert lines(Lake(full.path)) == before
    assert verify(full, None).ok
    assert compact(full).commits == 0


def test_files_do_not_grow_beyond_the_target(full: Lake) -> None:
    most = max(file.bytes for file in full.files())
    compact(full, target=3 * most)
    assert verify(full, None).ok
    assert max(file.rows for file in full.files()) < 20 * 10 / 4


def test_whoever_appends_meanwhile_is_not_in_the_way(
    full: Lake, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, more = write_piece, list(record(5))

    def slow(*given: Any) -> Any:
        if more:
            append(Lake(full.path), [batch_of(more)], now=NOW)
            more.clear()
        return honest(*given)

    monkeypatch.setattr(compacting, "write_piece", slow)
    assert compact(full).commits == 1
    assert full.head() == 205
    assert verify(full, None).ok


def test_of_two_that_compact_one_gives_way_and_leaves_nothing(full: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, others = write_piece, [Lake(full.path)]

    def slow(*given: Any) -> Any:
        if others:
            assert compact(others.pop()).commits == 1
        return honest(*given)

    monkeypatch.setattr(compacting, "write_piece", slow)
    assert compact(full).commits == 0
    assert verify(full, None).ok
    kept = {commit_file.path for commit in full.commits() for commit_file in commit.add}
    assert {str(path.relative_to(full.path)) for path in full.path.rglob("*.parquet")} == kept


def test_what_is_damaged_does_not_become_part_of_another_file(full: Lake) -> None:
    place = full.place(full.files()[0])
    place.write_bytes(place.read_bytes() + b"more")
    with pytest.raises(Damaged, match="its sha256 is"):
        compact(full)


def test_files_of_two_releases_are_read_and_put_together(lake: Lake, record: Record) -> None:
    """One of an earlier release without a column, one of a later release with one more."""
    old, new = record(4, executions=(1,)), record(4, executions=(1,))
    append(lake, [batch_of(old)], now=NOW)
    append(lake, [batch_of(new)], now=NOW)
    first, second = lake.files()
    _rewrite(lake, 0, pq.read_table(lake.place(first)).drop_columns(["other"]))
    later = pq.read_table(lake.place(second))
    _rewrite(lake, 1, later.append_column("region", pa.array(["eu"] * 4)))
    lake = Lake(lake.path)
    assert read_file(lake, lake.files()[0]).schema.names == SCHEMA.names
    assert read_file(lake, lake.files()[1]).schema.names == [*SCHEMA.names, "region"]
    assert read_file(lake, lake.files()[0], ("region", "position"))["region"].null_count == 4
    assert verify(lake, None).ok
    compact(lake)
    (file,) = lake.files()
    assert read_file(lake, file)["region"].to_pylist() == [None] * 4 + ["eu"] * 4
    assert verify(lake, None).ok


def _rewrite(lake: Lake, number: int, table: pa.Table) -> None:
    """Put a file in the place of another as its own release would have written it."""
    file = lake.files()[number]
    lake.compact([write_piece(lake.path, part_of(file), table, 9)], [file], now=NOW)


def test_what_nobody_needs_goes_when_its_time_has_come(full: Lake) -> None:
    compact(full)
    before, kept = lines(full), {file.path for file in full.files()}
    (full.path / "events" / "left.parquet").write_bytes(b"of a run that was killed")
    (last,) = [commit for commit in full.commits() if commit.kind == "compact"]
    moment = parse_time(last.committed_at)
    assert vacuum(full, grace=3600, now=moment) == Vacuumed(young=len(last.remove) + 1)
    shown = vacuum(full, grace=3600, now=moment + 2 * HOUR, delete=False)
    assert shown.removed == len(last.remove) + 1
    assert vacuum(full, grace=3600, now=moment + 2 * HOUR) == shown
    assert {str(path.relative_to(full.path)) for path in (full.path / "events").rglob("*.parquet")} == kept
    assert lines(Lake(full.path)) == before
