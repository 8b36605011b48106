"""Local buffers from the ledger: complete, exact, current, and of bounded size in memory."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyarrow import feather

from noetl.archive.buffer import digest_of, read_metadata
from noetl.archive.columns import read_events
from noetl.errors import NotFound
from noetl.ports.ledger import Stream
from noetl.runtime.buffers import family_of, is_current, keep_buffer, keep_buffers
from noetl.runtime.wiring import Embedded
from tests.unit.runtime.histories import DOCUMENT, EXECUTION, History, home_at, whole

CHILD, GRANDCHILD = EXECUTION + 1000, EXECUTION + 2000


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with home_at(tmp_path) as opened:
        yield opened


async def test_a_buffer_has_everything(embedded: Embedded, tmp_path: Path) -> None:
    history = await whole(embedded)
    metadata = await keep_buffer(embedded, tmp_path, history.root)
    place = tmp_path / "local" / str(EXECUTION)
    assert sorted(entry.name for entry in place.iterdir()) == [
        "commands.feather", "events.feather", "metadata.json", "payloads",
    ]  # fmt: skip
    assert read_metadata(place) == metadata
    kept = [event for _, event in read_events(place / "events.feather", "events.feather")]
    assert kept == [item.event for item in await embedded.ledger.read_root(history.root)]
    assert (metadata.status, metadata.playbook_path, metadata.event_count) == ("COMPLETED", "sales/load", len(kept))
    assert metadata.document_sha256 == hashlib.sha256(DOCUMENT).hexdigest()
    assert metadata.files["events.feather"] == digest_of(place / "events.feather")
    heads = {head.stream_id: head for head in await embedded.ledger.heads(root=history.root)}
    assert {end.stream_id: (end.version, end.chain_hash) for end in metadata.streams} == {
        name: (head.version, head.chain_hash) for name, head in heads.items()
    }
    assert metadata.head.stream_id == f"execution/{EXECUTION}"


async def test_every_kind_of_reference_is_followed(embedded: Embedded, tmp_path: Path) -> None:
    history = await whole(embedded)
    metadata = await keep_buffer(embedded, tmp_path, history.root)
    files = {file.name: file.read_bytes() for file in (tmp_path / "local" / str(EXECUTION) / "payloads").iterdir()}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in files.items())
    assert DOCUMENT in files.values()
    assert {len(data) for data in files.values()} >= {5002, len(DOCUMENT)}
    assert (metadata.payload_count, metadata.payload_bytes) == (3, sum(map(len, files.values()))) == (len(files), 5076)


async def test_what_is_only_mentioned_comes_along_if_it_is_there(embedded: Embedded, tmp_path: Path) -> None:
    history = History(embedded)
    await history.begin()
    artifact = await history.store(b"an artifact")
    gone = artifact.uri.replace(artifact.sha256, "0" * 64)
    await history.tell("call.done", payload={"result": {"status": "ok", "context": {"uri": artifact.uri, "old": gone}}})
    await history.end()
    metadata = await keep_buffer(embedded, tmp_path, history.root)
    payloads = tmp_path / "local" / str(EXECUTION) / "payloads"
    assert (payloads / artifact.sha256).read_bytes() == b"an artifact"
    assert metadata.payload_count == 2
    assert metadata.payload_bytes == len(DOCUMENT) + len(b"an artifact")


async def test_commands_are_rows(embedded: Embedded, tmp_path: Path) -> None:
    history = await whole(embedded)
    await keep_buffer(embedded, tmp_path, history.root)
    rows = feather.read_table(tmp_path / "local" / str(EXECUTION) / "commands.feather").to_pylist()
    assert [(row["execution_id"], row["step_name"], row["tool_kind"], row["status"]) for row in rows] == [
        (EXECUTION, "load", "python", "COMPLETED")
    ]


async def test_those_it_called_come_along_each_in_a_directory_of_its_own(embedded: Embedded, tmp_path: Path) -> None:
    history = await whole(embedded)
    await whole(embedded, CHILD, parent=EXECUTION)
    await whole(embedded, GRANDCHILD, parent=CHILD)
    await whole(embedded, EXECUTION + 3000)
    directories = await keep_buffers(embedded, tmp_path, history.root)
    assert [directory.name for directory in directories] == [str(EXECUTION), str(CHILD), str(GRANDCHILD)]
    assert json.loads((directories[2] / "metadata.json").read_bytes())["parent_execution_id"] == str(CHILD)
    assert len(await family_of(embedded, history.root)) == 3


async def test_one_that_is_current_is_left_alone_and_made_again_when_it_is_not(
    embedded: Embedded, tmp_path: Path
) -> None:
    history = await whole(embedded)
    (directory,) = await keep_buffers(embedded, tmp_path, history.root)
    assert await is_current(embedded.ledger, history.root, directory)
    inode = directory.stat().st_ino
    await keep_buffers(embedded, tmp_path, history.root)
    assert directory.stat().st_ino == inode
    await history.tell("command.cancelled", command_id=7, node_name="load")
    assert not await is_current(embedded.ledger, history.root, directory)
    await keep_buffers(embedded, tmp_path, history.root)
    assert await is_current(embedded.ledger, history.root, directory)
    assert [entry.name for entry in directory.parent.iterdir()] == [str(EXECUTION)]


async def test_a_payload_that_is_gone_leaves_no_directory(embedded: Embedded, tmp_path: Path) -> None:
    history = await whole(embedded)
    await embedded.payloads.delete(await history.store(DOCUMENT))
    with pytest.raises(NotFound, match=r"event \d+ needs a payload that is gone"):
        await keep_buffer(embedded, tmp_path, history.root)
    assert list((tmp_path / "local").iterdir()) == []


async def test_an_execution_that_is_not_there(embedded: Embedded, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no execution/7"):
        await keep_buffer(embedded, tmp_path, Stream("acme", "execution/7"))


async def test_memory_does_not_grow_with_the_events(embedded: Embedded, tmp_path: Path) -> None:
    sizes = []
    for execution_id, rounds in ((EXECUTION, 2), (CHILD, 20)):
        history = History(embedded, execution_id)
        await history.begin()
        for _ in range(rounds):
            await history.tell_many("model.checkpointed", [{"text": "x" * 20_000, "n": n} for n in range(100)])
        await history.end()
        tracemalloc.start()
        await keep_buffer(embedded, tmp_path, history.root)
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sizes[1] < 1.5 * sizes[0], sizes  # ten times the events
