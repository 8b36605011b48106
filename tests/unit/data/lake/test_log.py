"""The lake's log: what is committed is there, once, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from noetl.data.lake.layout import batch_of
from noetl.data.lake.log import CHECKPOINT_EVERY, Commit, Lake
from noetl.data.lake.writing import append
from noetl.errors import Conflict, Corruption, InvalidInput, NotFound
from noetl.kernel.event import Recorded
from tests.unit.data.lake.conftest import Record

NOW = 1_800_000_000_000_000


def add(lake: Lake, *recorded: Recorded) -> Commit:
    commit = append(lake, [batch_of(recorded)], now=NOW)
    assert commit is not None
    return commit


def test_a_lake_with_nothing_in_it(lake: Lake) -> None:
    assert (lake.head(), lake.files(), list(lake.commits()), lake.exists()) == (0, [], [], False)


def test_what_is_appended_is_there_for_everybody(lake: Lake, record: Record) -> None:
    recorded = record(30)
    first = add(lake, *recorded[:10])
    second = add(lake, *recorded[10:])
    other = Lake(lake.path)
    assert [first, second] == list(other.commits())
    assert (other.head(), other.files()) == (30, lake.files())
    assert second.first_position == 11
    assert second.checksum_at_end == recorded[-1].event.envelope_checksum
    assert sum(file.rows for file in other.files()) == 30
    assert {file.path for file in other.files(as_of=10)} == {file.path for file in first.add}
    assert sum(map(len, other.buckets().values())) == len(other.files())
    assert all(other.place(file).is_file() for file in other.files())


def test_of_two_writers_one_is_told_that_it_was_too_late(lake: Lake, record: Record) -> None:
    recorded = record(10)
    slow = Lake(lake.path)
    slow.snapshot()
    add(lake, *recorded[:5])
    with pytest.raises(Conflict, match="made by somebody else"):
        slow.append(1, 5, lake.files(), checksum="0" * 64, now=NOW)
    assert slow.head() == 5
    with pytest.raises(Conflict, match="ends at position 5, and 1 does not follow"):
        add(slow, *recorded[:5])


def test_a_gap_and_a_wrong_count_are_refused(lake: Lake, record: Record) -> None:
    recorded = record(10)
    with pytest.raises(Conflict, match="ends at position 0, and 3 does not follow"):
        add(lake, *recorded[2:])
    with pytest.raises(InvalidInput, match="positions 1 to 10, each once"):
        add(lake, *recorded[:4], *recorded[5:])
    assert lake.head() == 0


def test_checkpoints_keep_opening_cheap_and_are_made_up_for(lake: Lake, record: Record) -> None:
    recorded = record(2 * CHECKPOINT_EVERY + 3)
    for item in recorded[: CHECKPOINT_EVERY + 1]:
        add(lake, item)
    log = lake.path / "_log"
    assert [path.name for path in log.glob("*.checkpoint.json")] == [f"{CHECKPOINT_EVERY:012d}.checkpoint.json"]
    (log / f"{CHECKPOINT_EVERY:012d}.checkpoint.json").unlink()  # its writer was killed before it
    add(lake, recorded[CHECKPOINT_EVERY + 1])
    made = f"{CHECKPOINT_EVERY + 2:012d}.checkpoint.json"
    assert (log / made).is_file()
    for item in recorded[CHECKPOINT_EVERY + 2 :]:
        add(lake, item)
    (log / f"{1:012d}.json").rename(log / "kept")
    other = Lake(lake.path)
    assert (other.head(), other.files()) == (len(recorded), lake.files())
    with pytest.raises(Corruption, match="commit 1 is damaged: it is not there"):
        list(other.commits())


def test_files_take_the_place_of_others(lake: Lake, record: Record) -> None:
    recorded = record(4, executions=(1,))
    add(lake, *recorded[:2])
    second = add(lake, *recorded[2:])
    other = Lake(lake.path)
    old = lake.files()
    commit = lake.compact(second.add, second.add, now=NOW)
    assert (commit.kind, commit.last_position, lake.files(), other.files()) == ("compact", 4, old, old)
    with pytest.raises(InvalidInput, match="other events"):
        lake.compact((), second.add, now=NOW)
    with pytest.raises(Conflict, match="no part of the lake any more"):
        lake.compact((), [msgspec.structs.replace(old[0], path="events/none.parquet")], now=NOW)
    assert add(lake, *record(1)).first_position == 5


def test_a_damaged_log_is_named(lake: Lake, record: Record, tmp_path: Path) -> None:
    add(lake, *record(3))
    path = lake.path / "_log" / f"{1:012d}.json"
    text = path.read_text()
    path.write_text(text[:-20])
    with pytest.raises(Corruption, match=r"000000000001\.json is not part of a lake's log"):
        Lake(lake.path).head()
    path.write_text(text.replace('"first_position": 1', '"first_position": 2', 1))
    with pytest.raises(Corruption, match="it begins at position 2, not at 1"):
        Lake(lake.path).head()
    path.write_text(text.replace("events/tenant", "../events/tenant"))
    (out, *_) = Lake(lake.path).files()
    with pytest.raises(Corruption, match="not in the lake"):
        lake.place(out)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFound, match="not a directory"):
        Lake(tmp_path / "file" / "lake").head()
