"""How often a copying that has lost a process of Spark's begins again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.data.lake import syncing
from noetl.data.lake.log import Lake, Snapshot
from noetl.data.lake.syncing import LakeTarget, Sizes, recognise
from noetl.data.source.log import LogSpec, url_of_home
from noetl.errors import IntegrityMismatch, Unavailable
from tests.unit.data.source.conftest import Append

LOST = RuntimeError("Python worker failed to connect back.")


@pytest.fixture
def spec(home: Path, append: Append) -> LogSpec:
    append(10)
    return LogSpec(url_of_home(home))


@pytest.fixture
def run(lake: Lake, spec: LogSpec) -> Any:
    return syncing._Run(None, LakeTarget(lake), spec, Sizes(), lambda _: None)  # type: ignore[arg-type]


def play(run: Any, monkeypatch: pytest.MonkeyPatch, *ends: int | Exception) -> int:
    """Let each query come to a position, or fail; how many there were."""
    queries = iter(ends)
    count = 0

    def copy(*_: object) -> None:
        nonlocal count
        count += 1
        match next(queries):
            case int(head):
                run._done = msgspec.structs.replace(run._done, head=head)
                if head < 10:
                    raise syncing._explained(LOST)
            case Exception() as error:
                raise syncing._explained(error)

    monkeypatch.setattr(run, "_copy", copy)
    run.work(False, threading.Event())
    return count


def test_it_begins_again_as_long_as_it_comes_further(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(run, monkeypatch, LOST, LOST, 3, LOST, 6, LOST, 8, 10) == 8


def test_it_gives_up_when_it_comes_no_further(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="failed to connect back") as failed:
        play(run, monkeypatch, LOST, LOST, LOST)
    assert failed.value.hint == "run it again: it goes on where the lake ends"


def test_anything_else_is_told_at_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="no event at position 3"):
        play(run, monkeypatch, RuntimeError("there is no event at position 3"))


def test_a_ledger_that_was_put_back_is_not_the_lakes(spec: LogSpec) -> None:
    assert recognise(Snapshot(), spec) == 10
    with pytest.raises(IntegrityMismatch, match="ends at position 10, and the lake has events up to 11"):
        recognise(Snapshot(last_position=11, checksum_at_end="0" * 64), spec)
    with pytest.raises(IntegrityMismatch, match="position 4 of the lake is not the one"):
        recognise(Snapshot(last_position=4, checksum_at_end="0" * 64), spec)
