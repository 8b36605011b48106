"""A bulk replay leaves a directory that is whole and says what is in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.bulk.bounds import Bounds
from noetl.data.bulk.parts import Part
from noetl.data.bulk.replaying import SUMMARY, Plan, replay_all
from noetl.data.bulk.shares import pack, shares_of
from noetl.data.bulk.tasks import Work, fold_lake
from noetl.data.lake.log import Lake
from noetl.errors import Corruption, StorageFull
from tests.unit.data.bulk.tables import golden, lake_of, pinned


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(tmp_path_factory.mktemp("lake"), golden())


def alone(lake: Lake, attempts: int = 1) -> Plan:
    """Tasks one after the other in this process; each runs so many times, as a task does whose executor was lost."""

    def plan(work: Work) -> tuple[Bounds, Callable[[], list[Part]]]:
        bounds = msgspec.structs.replace(work.bounds, position=lake.head())
        pieces = tuple(map(tuple, pack(shares_of(lake, bounds), 3)))
        argument = msgspec.json.encode(msgspec.structs.replace(work, lake=str(lake.path), pieces=pieces, bounds=bounds))

        def one(number: int) -> Part:
            ids = pa.record_batch([pa.array([number], pa.int64())], names=["id"])
            told: Any = [next(fold_lake(argument, [ids])) for _ in range(attempts)][-1]
            return msgspec.json.decode(told.column("part")[0].as_py(), type=Part)

        return bounds, lambda: [one(number) for number in range(len(pieces))]

    return plan


def test_the_directory_has_what_the_summary_says(lake: Lake, tmp_path: Path) -> None:
    found = replay_all(tmp_path / "out", "lake", plan=alone(lake, attempts=2))
    assert (found.roots, found.events, found.failed) == (len(pinned()), len(golden()), 0)
    assert (found.position, found.until, found.source) == (len(golden()), None, "lake")
    assert json.loads((tmp_path / "out" / SUMMARY).read_bytes()) == msgspec.to_builtins(found)
    there = {str(path.relative_to(tmp_path / "out")): path for path in (tmp_path / "out").rglob("*.parquet")}
    assert {file.path: file.sha256 for file in found.files} == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()
    }
    rows = pq.read_table(tmp_path / "out" / "bundles").to_pylist()
    assert {(row["tenant_id"], row["root"]): (row["checksum"], dict(row["bundle"])) for row in rows} == pinned()


def test_two_replays_of_one_moment_have_one_checksum(lake: Lake, tmp_path: Path) -> None:
    found = [replay_all(tmp_path / str(n), "lake", Bounds(), plan=alone(lake), states=n == 0) for n in range(2)]
    assert found[0].checksum == found[1].checksum
    assert not (tmp_path / "1" / "states").exists()


def test_what_a_task_ends_with_is_raised_and_nothing_is_left(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", golden()[:40])
    lake.place(lake.files()[0]).unlink()
    with pytest.raises(Corruption, match="is gone from the lake"):
        replay_all(tmp_path / "out", "lake", plan=alone(lake))
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_a_full_disk_is_said(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("noetl.data.bulk.parts.os.fsync", full)
    with pytest.raises(StorageFull, match="cannot be written: No space left on device"):
        replay_all(tmp_path / "out", "lake", plan=alone(lake))
    assert list(tmp_path.iterdir()) == []
