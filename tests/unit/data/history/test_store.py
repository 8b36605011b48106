"""The log of facts: ranges without gaps, files that are known or do not count."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.bulk import Bounds
from noetl.data.history.facts.store import FactCommit, FactStore
from noetl.errors import Corruption


class Frame:
    """Writes a file as a frame of Spark's does."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers
        self.write: Any = self

    def mode(self, _: str) -> Frame:
        return self

    def option(self, _: str, __: str) -> Frame:
        return self

    def parquet(self, path: str) -> None:
        Path(path).mkdir(parents=True)
        for place, number in enumerate(self.numbers):
            pq.write_table(pa.table({"n": [number]}), Path(path) / f"part-{place:05d}-x.parquet")
        (Path(path) / "_SUCCESS").touch()


@pytest.fixture
def store(tmp_path: Path) -> FactStore:
    return FactStore(tmp_path)


def write(store: FactStore, number: int, first: int, last: int, until: str = "2026-01-01") -> FactCommit | None:
    frames: Any = {"frames": Frame(1, 2), "health": Frame()}
    return store.write(number, first, last, frames, until=until)


def test_what_is_written_is_committed_and_found(store: FactStore) -> None:
    with store.writing():
        first, second = write(store, 1, 1, 10), write(store, 2, 11, 15)
    assert first is not None
    assert second is not None
    assert FactStore(store.path.parents[1]).commits() == [first, second]
    places = store.places([first, second], "frames")
    assert [pq.read_table(place)["n"].to_pylist() for place in places] == [[1], [2], [1], [2]]
    assert store.places([first], "health") == []
    assert store.places([first], "of a later release") == []


def test_whoever_comes_second_is_told_and_leaves_nothing(store: FactStore) -> None:
    with store.writing():
        mine = write(store, 1, 1, 10)
        assert write(store, 1, 1, 12) is None
    assert store.commits() == [mine]
    assert len(list(store.path.glob("frames/*.parquet"))) == 4
    with store.writing():
        assert len(list(store.path.glob("frames/*.parquet"))) == 2


def test_what_a_killed_writer_has_left_is_removed(store: FactStore) -> None:
    with store.writing():
        write(store, 1, 1, 10)
    known = sorted(store.path.glob("frames/*"))
    (store.path / "frames" / "11-20-dead-0.parquet").touch()
    (store.path / "_drafts" / "dead" / "frames").mkdir(parents=True)
    with store.writing():
        assert sorted(store.path.glob("frames/*")) == known
        assert not (store.path / "_drafts").exists()


def test_there_is_one_writer_at_a_time(store: FactStore) -> None:
    order: list[str] = []

    def other() -> None:
        with store.writing():
            order.append("other")

    with store.writing():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.2)
        order.append("mine")
    thread.join(10)
    assert order == ["mine", "other"]


def test_a_moment_takes_the_commits_of_which_every_event_counts(store: FactStore) -> None:
    with store.writing():
        for number, until in ((1, "2026-01-01"), (2, "2026-01-03"), (3, "2026-01-03")):
            write(store, number, number * 10 - 9, number * 10, until)

    def taken(head: int = 30, **bounds: Any) -> list[int]:
        return [commit.commit for commit in store.within(head, Bounds(**bounds))]

    assert taken() == [1, 2, 3]
    assert taken(position=25) == [1, 2]
    assert taken(position=9) == []
    assert taken(until="2026-01-02") == [1]
    assert taken(until="2026-01-03") == [1, 2, 3]
    assert taken(head=20) == [1, 2]


def test_a_gap_is_damage(store: FactStore) -> None:
    with store.writing():
        write(store, 1, 1, 10)
        write(store, 2, 12, 15)
    with pytest.raises(Corruption, match="commit 2 does not follow position 10") as caught:
        store.commits()
    assert "noetl lake facts makes it again" in (caught.value.hint or "")


def test_a_file_that_is_gone_is_named(store: FactStore) -> None:
    with store.writing():
        commit = write(store, 1, 1, 10)
    assert commit is not None
    gone = store.path / commit.files["frames"][1]
    gone.unlink()
    with pytest.raises(Corruption, match=f"{gone.name} is gone"):
        store.places([commit], "frames")


def test_a_commit_that_cannot_be_read_is_named(store: FactStore) -> None:
    with store.writing():
        write(store, 1, 1, 10)
    (store.path / "_log" / "000000000001.json").write_bytes(msgspec.json.encode({"commit": 1}))
    with pytest.raises(Corruption, match="commit 1 cannot be read"):
        store.commits()
