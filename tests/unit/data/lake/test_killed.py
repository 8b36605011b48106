"""Killed at every moment of a write, twice: what the lake has is a prefix, and going on completes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from noetl.data.lake.checking import verify
from noetl.data.lake.compacting import compact
from noetl.data.lake.layout import batch_of
from noetl.data.lake.log import Lake
from noetl.data.lake.writing import append
from noetl.errors import StorageFull, Unavailable
from noetl.kernel.event import Recorded
from tests.unit.data.lake.conftest import Record

NOW = 1_800_000_000_000_000


class Killed(BaseException):
    """Nothing of the process runs after it."""


class Moments:
    """Lets a process live for so many calls of the system; then none works any more."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: float = float("inf")
        for owner, name in (
            (os, "fsync"), (os, "link"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir"), (pq, "write_table"),
        ):  # fmt: skip
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, honest: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if self.left <= 0:
                raise Killed
            self.left -= 1
            return honest(*given, **more)

        return call

    def lives(self, work: Callable[[], object], calls: int) -> bool:
        self.left = calls
        try:
            work()
        except Killed:
            return False
        finally:
            self.left = float("inf")
        return True


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    return Moments(monkeypatch)


def go_on(lake: Path, recorded: list[Recorded]) -> Callable[[], object]:
    """A sync as it begins anew: what the lake does not have, ten at a time."""

    def work() -> None:
        opened = Lake(lake)
        while rest := recorded[opened.head() :]:
            append(opened, [batch_of(rest[:10])], now=NOW)

    return work


def test_killed_at_every_moment_of_a_sync_twice(moments: Moments, record: Record, tmp_path: Path) -> None:
    recorded = list(record(20, executions=(1, 2)))
    calls, finished = 0, False
    while not finished:
        place = tmp_path / str(calls)
        finished = moments.lives(go_on(place, recorded), calls)
        first = verify(Lake(place), None)
        assert first.problems == []
        assert first.head in (0, 10, 20)
        moments.lives(go_on(place, recorded), calls // 2)
        second = verify(Lake(place), None)
        assert (second.problems, second.head >= first.head) == ([], True)
        go_on(place, recorded)()
        last = verify(Lake(place), None)
        assert (last.problems, last.rows, last.head) == ([], 20, 20)
        calls += 1
    assert calls > 20


def test_killed_at_every_moment_of_a_compaction(moments: Moments, record: Record, tmp_path: Path) -> None:
    recorded = list(record(20, executions=(1, 2)))
    calls, finished = 0, False
    while not finished:
        place = tmp_path / str(calls)
        go_on(place, recorded)()
        lake = Lake(place)
        finished = moments.lives(lambda lake=lake: compact(lake), calls)  # type: ignore[misc]  # the lake of this round
        found = verify(Lake(place), None)
        assert (found.problems, found.rows) == ([], 20)
        compact(Lake(place))
        assert verify(Lake(place), None).rows == 20
        assert len(Lake(place).files()) == len({file.bucket for file in Lake(place).files()})
        calls += 1
    assert calls > 5


@pytest.mark.parametrize(
    ("number", "kind", "said"), [(28, StorageFull, "no space is left for"), (13, Unavailable, "cannot be written")]
)
def test_a_disk_that_does_not_take_it(
    number: int, kind: type[Exception], said: str, lake: Lake, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_table: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pq, "write_table", refused)
    with pytest.raises(kind, match=said):
        append(lake, [batch_of(record(3))], now=NOW)
    assert lake.head() == 0
    assert [path for path in lake.path.rglob("*") if path.is_file()] == []
