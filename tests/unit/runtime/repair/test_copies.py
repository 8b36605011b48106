"""Copies as sources: each offers what it has, and nothing it has no business to offer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.kernel.event import PayloadRef
from noetl.payloads.routes import routed
from noetl.payloads.shm import is_available
from noetl.payloads.store import payload_key
from noetl.runtime.repair.copies import BufferSource, ReplicaSource, TierSource
from noetl.runtime.repair.needs import Need, needs_of
from noetl.runtime.repair.repairer import Source
from tests.unit.runtime.histories import EXECUTION, History, home_at, whole


async def offered(source: Source, need: Need) -> list[bytes]:
    return [b"".join([piece async for piece in offer]) async for offer in source.offers(need)]


@pytest.fixture
async def need(tmp_path: Path) -> AsyncIterator[Need]:
    """A payload of an execution, whose content is `told`."""
    async with home_at(tmp_path / "home") as embedded:
        history = History(embedded)
        await history.begin()
        await history.tell("model.checkpointed", payload_ref=await history.store(b"told"))
        found = [one async for one in needs_of(embedded.ledger)]
        yield found[-1]


async def test_an_offline_buffer_has_files_by_their_digest(need: Need, tmp_path: Path) -> None:
    source = BufferSource(tmp_path)
    assert await offered(source, need) == []
    file = tmp_path / "local" / str(EXECUTION) / "payloads" / need.ref.sha256
    file.parent.mkdir(parents=True)
    file.write_bytes(b"told")
    assert await offered(source, need) == [b"told"]
    file.write_bytes(b"too long")
    assert await offered(source, need) == []


async def test_a_replica_has_the_key_without_its_route(need: Need, tmp_path: Path) -> None:
    objects = FilesystemObjectStore(tmp_path / "replica")
    source = ReplicaSource(objects)
    assert await offered(source, need) == []
    await objects.put(payload_key("acme", need.ref.sha256), b"told")
    assert await offered(source, need) == [b"told"]
    assert await offered(source, msgspec.structs.replace(need, key=routed("s3", need.key))) == [b"told"]


async def test_a_result_that_is_another_executions_is_not_made_from_this_ones_copies(
    need: Need, tmp_path: Path
) -> None:
    uri = f"noetl://acme/sales/results/{EXECUTION + 1}/load~1/0/0/1@v1"
    ref = PayloadRef(uri=uri, sha256=need.ref.sha256, media_type="text/plain", bytes=4, key="k")
    foreign = msgspec.structs.replace(need, ref=ref, key="k")
    assert not foreign.is_own
    file = tmp_path / "local" / str(EXECUTION) / "payloads" / need.ref.sha256
    file.parent.mkdir(parents=True)
    file.write_bytes(b"told")
    assert await offered(BufferSource(tmp_path), foreign) == []


@pytest.mark.skipif(not is_available(), reason="this platform has no /dev/shm")
async def test_a_table_in_shared_memory_gives_its_object_back(tmp_path: Path) -> None:
    async with home_at(tmp_path / "home") as embedded:
        table = pa.table({"id": list(range(50_000)), "name": [f"n{number}" for number in range(50_000)]})
        ref = await embedded.tiers.store_table(table)
        assert ref.ipc is not None
        history = History(embedded)
        await history.tell("model.checkpointed", payload_ref=ref)
        [found] = [one async for one in needs_of(embedded.ledger)]
        stored = await embedded.objects.get(found.key)
        assert stored in await offered(TierSource(embedded), found)


async def test_every_reference_of_a_history_is_needed_once(tmp_path: Path) -> None:
    async with home_at(tmp_path / "home") as embedded:
        history = await whole(embedded)
        again = await whole(embedded, EXECUTION + 1)
        of_one = [one async for one in needs_of(embedded.ledger, history.root)]
        of_all = [one async for one in needs_of(embedded.ledger)]
    assert [one.key for one in of_one] == [one.key for one in of_all]
    assert {one.event.execution_id for one in of_all} == {EXECUTION}
    assert again.execution_id != EXECUTION
    assert [one.is_document for one in of_all] == [True, False, False]
