"""What tasks do on executors, done here: without Spark they are functions of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.data.source.place import Place
from noetl.data.sweeps import tasks
from noetl.data.sweeps.shelf import fingerprint
from noetl.data.sweeps.spec import SweepSpec
from noetl.errors import NoetlError
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.payloads.sweeping.judging import FOREVER
from noetl.runtime.archiving import open_archiver
from noetl.runtime.forgetting import open_retention
from noetl.runtime.wiring import Embedded
from noetl.settings import Settings
from tests.unit.runtime.plant import opened

Task = Callable[[bytes, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
BOOK = {
    "apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "b", "path": "b"},
    "workflow": [{"step": "make", "tool": {"kind": "python", "code": "result = {'fill': 'x' * 100_000}"}}],
}  # fmt: skip


def spec_of(place: Path, **more: Any) -> SweepSpec:
    at = Place(home=str(place / "home"), directory=str(place))
    usual: dict[str, Any] = {"fingerprint": fingerprint(at, Settings()), "now": 10**18, "grace": 0}
    return SweepSpec(place=at, **{**usual, **more})


def run(task: Task, spec: SweepSpec, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    made = task(msgspec.msgpack.encode(spec), iter([pa.RecordBatch.from_pylist(list(rows))]))
    return [row for batch in made for row in batch.to_pylist()]


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    async with opened(tmp_path) as plant:
        await plant.run(BOOK)
    return tmp_path


def test_an_object_is_listed_with_what_describes_it(place: Path) -> None:
    (place / "home" / "payloads" / "noetl" / "owner.json").write_bytes(b"{}")
    (place / "home" / "payloads" / "strange.txt").write_bytes(b"?")
    (place / "home" / "payloads" / "strange.txt.meta.json").write_bytes(b"?")
    rows = run(tasks.list_objects, spec_of(place, marks=("noetl/owner.json",)), {"folder": "", "deep": True})
    assert sorted(row["kind"] for row in rows) == ["foreign", "mark", "payload", "result"]
    assert all(row["sidecar_size"] for row in rows if row["kind"] != "mark")
    shallow = run(tasks.list_objects, spec_of(place), {"folder": "", "deep": False})
    assert [row["key"] for row in shallow] == ["strange.txt"]


def test_a_log_is_heard_in_spans(place: Path) -> None:
    whole = run(tasks.hear_log, spec_of(place), {"after": 0, "to": 7})
    parts = run(tasks.hear_log, spec_of(place), {"after": 0, "to": 3}, {"after": 3, "to": 7})

    def of(rows: list[dict[str, Any]]) -> tuple[set[bytes], int, set[str], bool]:
        identities = {row["identity"] for row in rows if row["identity"]}
        events = sum(row["events"] or 0 for row in rows)
        return identities, events, {row["heard"] for row in rows if row["heard"]}, any(row["ended"] for row in rows)

    assert of(whole) == of(parts)
    assert of(whole)[1:3] == (7, {"default"})


async def put_away(embedded: Embedded, execution_id: int) -> Stream:
    """Archive an execution, and let its events leave the ledger."""
    assert embedded.home is not None
    root = Stream("default", execution_stream(execution_id))
    await (await open_archiver(embedded, embedded.home, embedded.settings)).archive(root)
    async for _ in open_retention(embedded, embedded.settings, min_age=0).sweep(apply=True):
        continue
    assert await embedded.ledger.forgotten(root=root)
    return root


@pytest.fixture
async def away(tmp_path: Path) -> dict[str, Any]:
    """An execution whose events are in an archive only, as a task is told of it."""
    async with opened(tmp_path) as plant:
        root = await put_away(plant.embedded, (await plant.run(BOOK)).execution_id)
    return {"rank": 1, "tenant": root.tenant_id, "stream": root.stream_id}


def test_an_archive_is_heard_like_the_log(tmp_path: Path, away: dict[str, Any], place: Path) -> None:
    archived = run(tasks.hear_archives, spec_of(tmp_path), away)
    (events,) = (row["events"] for row in archived if row["events"])
    logged = run(tasks.hear_log, spec_of(tmp_path), {"after": 0, "to": 2 * events})
    assert [row["events"] for row in logged if row["events"]] == [events]
    assert {row["execution"] for row in archived if row["ended"]} == {int(away["stream"].split("/")[1])}
    assert sum(row["identity"] is not None for row in archived) >= 2


def test_an_archive_that_cannot_be_read_stops_the_sweep(tmp_path: Path, away: dict[str, Any]) -> None:
    (segment,) = (tmp_path / "home" / "archive").rglob("segment-000001.jsonl.zst")
    segment.write_bytes(segment.read_bytes()[:-9])
    with pytest.raises(Exception, match=r"segment-000001.jsonl.zst"):
        run(tasks.hear_archives, spec_of(tmp_path), away)
    (tmp_path / "home" / "archive").rename(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="there is no directory"):
        run(tasks.hear_archives, spec_of(tmp_path), away)


def test_an_executor_whose_log_ends_too_soon_says_so(place: Path) -> None:
    with pytest.raises(Exception, match="ends before position 1000000"):
        run(tasks.hear_log, spec_of(place), {"after": 0, "to": 1_000_000})


def test_an_executor_with_other_settings_sweeps_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_PAYLOADS__URL", "file:///elsewhere")
    for task in (tasks.list_objects, tasks.hear_log, tasks.look_inside):
        with pytest.raises(Exception, match="see other settings than this command"):
            run(task, spec_of(place))


def test_a_store_that_is_encrypted_is_not_for_spark(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_PAYLOADS__ENCRYPT", "true")
    at = Place(home=str(place / "home"), directory=str(place))
    spec = spec_of(place, fingerprint=fingerprint(at, at.settings({"NOETL_PAYLOADS__ENCRYPT": "true"})))
    with pytest.raises(Exception, match="Spark is not given the key"):
        run(tasks.list_objects, spec, {"folder": "", "deep": True})


def test_objects_are_judged_as_without_spark(place: Path) -> None:
    row = {
        "key": "k", "size": 1, "modified_at": "2026-01-01T00:00:00.000000Z", "kind": "payload", "identity": b"i" * 32,
        "tenant": "t", "execution": None, "sidecar_size": None, "sidecar_at": None, "until": None, "ended": None,
    }  # fmt: skip
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({}, "no event refers to it"),
        ({"until": FOREVER}, None),
        ({"until": 5}, "its time is over, and its execution has ended"),
        ({"kind": "result", "execution": 7}, "its execution is not in the ledger"),
        ({"kind": "result", "execution": 7, "ended": False}, None),
        ({"kind": "sidecar"}, "there is no object that it describes"),
        ({"kind": "foreign"}, None),
        ({"kind": "mark"}, None),
    ]
    judged = run(tasks.judge_objects, spec_of(place, now=10**18), *({**row, **changes} for changes, _ in cases))
    assert [one["reason"] for one in judged] == [reason for _, reason in cases]
    [young] = run(tasks.judge_objects, spec_of(place, now=10**18, grace=10**18), row)
    assert (young["reason"], young["is_young"]) == (None, True)


def test_names_are_found_and_what_cannot_be_read_is_told(place: Path) -> None:
    rows = run(tasks.list_objects, spec_of(place), {"folder": "", "deep": True})
    assert not [row for row in run(tasks.look_inside, spec_of(place), *rows) if row["damaged"]]
    [broken] = [row for row in rows if row["kind"] == "payload"]
    file = place / "home" / "payloads" / broken["key"]
    file.write_bytes(b"ab" * 32)
    found = run(tasks.look_inside, spec_of(place), *rows)
    assert [row["damaged"] for row in found if row["damaged"]] == [broken["key"]]


def test_errors_of_ours_are_carried(place: Path) -> None:
    with pytest.raises(Exception, match="noetl-fault") as caught:
        run(tasks.list_objects, spec_of(place / "nowhere", fingerprint="?"), {"folder": "", "deep": True})
    assert isinstance(caught.value.__cause__, NoetlError)
