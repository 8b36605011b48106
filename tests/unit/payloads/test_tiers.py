"""Payloads through their tiers: the store first, the nearest sound copy, and no copy that matters."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound, Unavailable
from noetl.kernel.event import PayloadRef
from noetl.observe import metrics
from noetl.payloads import caches as nearer
from noetl.payloads import formats
from noetl.payloads.caches import Caches
from noetl.payloads.disk import DiskCache
from noetl.payloads.mapped import note
from noetl.payloads.shm import ROOT, Segments, is_available
from noetl.payloads.store import PayloadStore, payload_key
from noetl.payloads.tiers import PayloadTiers
from noetl.settings import Bytes, Payloads
from noetl.tools.python.worker.tables import write

pytestmark = pytest.mark.skipif(not is_available(), reason="this platform has no /dev/shm")

START = 1_800_000_000_000_000
MIB = 1 << 20
DATA = b"id,name\n1,ada\n" * 100
TABLE = pa.table({"id": list(range(5000)), "name": [f"n{number}" for number in range(5000)]})
Outcomes = Counter[tuple[str, ...]]


class Tally:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.counted: Outcomes = Counter()

    def count(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        self.counted[(name.removeprefix("noetl_payload_").removesuffix("_total"), *labels)] += int(amount)

    def observe(self, name: str, value: float, labels: tuple[str, ...]) -> None:
        raise AssertionError(name)

    def shift(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        raise AssertionError(name)

    def reads(self) -> dict[str, str]:
        """What each tier answered since the last question."""
        found = {labels[0]: labels[1] for name, *labels in self.counted if name == "reads"}
        self.counted.clear()
        return found


class Node:
    """A machine with its memory and disk, on which processes come and go."""

    def __init__(self, objects: MemoryObjectStore, clock: VirtualClock, shm: Path, disk: Path, name: str) -> None:
        self.clock = clock
        self._objects = objects
        self._shm = shm
        self._disk = disk
        self._name = name
        self.opened: list[Caches] = []

    def process(self, tenant: str = "acme", *, verify_ipc: bool = False) -> PayloadTiers:
        caches = Caches(
            Payloads(
                memory=Bytes(4 * MIB),
                shared_memory=Bytes(8 * MIB),
                disk_cache=Bytes(8 * MIB),
                verify_ipc=verify_ipc,
            ),
            self.clock,
            node_id=self._name,
            disk_directory=self._disk,
            shared_root=self._shm,
        )
        self.opened.append(caches)
        return PayloadTiers(PayloadStore(self._objects, tenant, "sales"), caches)


@pytest.fixture
def tally() -> Iterator[Tally]:
    recorder = Tally()
    metrics.install(recorder)
    yield recorder
    metrics.uninstall()


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def shm() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="noetl-test-") as folder:
        yield Path(folder)


@pytest.fixture
async def node(objects: MemoryObjectStore, shm: Path, tmp_path: Path) -> AsyncIterator[Node]:
    machine = Node(objects, VirtualClock(START), shm, tmp_path / "disk", "node-1")
    yield machine
    for caches in machine.opened:
        await caches.close()


@pytest.fixture
def elsewhere(objects: MemoryObjectStore, shm: Path, tmp_path: Path) -> Node:
    return Node(objects, VirtualClock(START), shm, tmp_path / "other-disk", "node-2")


def copies(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "disk" / "copies").rglob("*") if path.is_file()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def sizes(folder: Path) -> set[int]:
    return {path.stat().st_size for path in folder.iterdir()}


class TestBytes:
    async def test_each_tier_answers_before_the_next(self, node: Node, elsewhere: Node, tally: Tally) -> None:
        ref = await node.process().store(DATA, media_type="text/csv")
        tally.reads()
        reader = node.process()
        assert await reader.fetch(ref) == DATA
        assert tally.reads() == {"memory": "miss", "disk": "hit"}
        assert await reader.fetch(ref) == DATA
        assert tally.reads() == {"memory": "hit"}
        assert await elsewhere.process().fetch(ref) == DATA
        assert tally.reads() == {"memory": "miss", "disk": "miss", "durable": "hit"}
        assert await elsewhere.process().fetch(ref) == DATA
        assert tally.reads() == {"memory": "miss", "disk": "hit"}

    async def test_a_stream_is_stored_too(self, node: Node) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield DATA[:10]
            yield DATA[10:]

        ref = await node.process().store(pieces(), media_type="text/csv")
        assert await node.process().fetch(ref) == DATA

    async def test_a_damaged_copy_is_replaced_from_the_store(self, node: Node, tally: Tally, tmp_path: Path) -> None:
        ref = await node.process().store(DATA, media_type="text/csv")
        [copy] = copies(tmp_path)
        copy.write_bytes(b"x" * len(DATA))
        tally.reads()
        assert await node.process().fetch(ref) == DATA
        assert tally.reads() == {"memory": "miss", "disk": "damaged", "durable": "hit"}
        assert copy.read_bytes() == DATA

    async def test_only_the_stores_word_is_an_error(
        self, node: Node, objects: MemoryObjectStore, tmp_path: Path, tally: Tally
    ) -> None:
        ref = await node.process().store(DATA, media_type="text/csv")
        [copy] = copies(tmp_path)
        copy.unlink()
        await objects.put(payload_key("acme", ref.sha256), b"x" * len(DATA), overwrite=True)
        with pytest.raises(IntegrityMismatch, match="is damaged"):
            await node.process().fetch(ref)
        assert tally.reads()["durable"] == "damaged"
        await objects.delete(payload_key("acme", ref.sha256))
        with pytest.raises(NotFound, match="is not in the store"):
            await node.process().fetch(ref)
        assert tally.reads()["durable"] == "miss"
        assert copies(tmp_path) == []

    async def test_nothing_is_copied_that_the_store_did_not_take(
        self, node: Node, objects: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shm: Path
    ) -> None:
        async def down(*_: Any, **__: Any) -> bool:
            raise Unavailable("the bucket does not answer")

        monkeypatch.setattr(objects, "put", down)
        process = node.process()
        with pytest.raises(Unavailable):
            await process.store(DATA, media_type="text/csv")
        with pytest.raises(Unavailable):
            await process.store_table(TABLE)
        assert copies(tmp_path) == []
        assert sizes(shm) <= {0}

    async def test_a_tenant_never_reads_anothers_copies(self, node: Node) -> None:
        owner = node.process()
        ref = await owner.store_table(TABLE)
        other = owner.of_tenant("globex")
        for read in (other.fetch, other.table):
            with pytest.raises(InvalidInput, match="belongs to tenant 'acme'"):
                await read(ref)
        guessed = msgspec.structs.replace(ref, uri=ref.uri.replace("acme", "globex"), ipc=None)
        with pytest.raises(NotFound):
            await other.fetch(guessed)

    async def test_the_counters_add_up(self, node: Node, tally: Tally) -> None:
        process = node.process()
        ref = await process.store(DATA, media_type="text/csv")
        await process.fetch(ref)
        await process.fetch(ref)
        size = len(DATA)
        assert tally.counted == {
            ("writes", "durable", "taken"): 1,
            ("written_bytes", "durable"): size,
            ("writes", "disk", "taken"): 1,
            ("written_bytes", "disk"): size,
            ("reads", "memory", "miss"): 1,
            ("reads", "disk", "hit"): 1,
            ("read_bytes", "disk"): size,
            ("writes", "memory", "taken"): 1,
            ("written_bytes", "memory"): size,
            ("reads", "memory", "hit"): 1,
            ("read_bytes", "memory"): size,
        }


class TestTables:
    async def test_a_table_is_durable_before_it_is_shared(self, node: Node, objects: MemoryObjectStore) -> None:
        ref = await node.process().store_table(TABLE)
        assert (ref.media_type, ref.rows) == ("application/vnd.apache.arrow.file", 5000)
        assert ref.ipc is not None
        assert (ref.ipc.node_id, ref.ipc.schema_digest) == ("node-1", ref.schema_digest)
        stored = await objects.get(payload_key("acme", ref.sha256))
        assert hashlib.sha256(stored).hexdigest() == ref.sha256
        assert formats.table_in(stored) == TABLE

    async def test_the_other_processes_of_the_machine_copy_nothing(self, node: Node, tally: Tally) -> None:
        ref = await node.process().store_table(TABLE)
        reader = node.process(verify_ipc=True)
        before = pa.total_allocated_bytes()
        tally.reads()
        table = await reader.table(ref)
        assert pa.total_allocated_bytes() == before
        assert table == TABLE
        assert tally.reads() == {"memory": "miss", "shared": "hit"}

    async def test_another_machine_falls_through_to_the_store(self, node: Node, elsewhere: Node, tally: Tally) -> None:
        ref = await node.process().store_table(TABLE)
        tally.reads()
        reader = elsewhere.process()
        assert await reader.table(ref) == TABLE
        assert tally.reads() == {"memory": "miss", "shared": "foreign", "disk": "miss", "durable": "hit"}
        assert await reader.table(ref) == TABLE
        assert tally.reads() == {"memory": "hit"}
        assert await elsewhere.process().table(ref) == TABLE
        assert tally.reads() == {"memory": "miss", "shared": "foreign", "disk": "hit"}

    async def test_a_lease_that_is_over_falls_through(self, node: Node, tally: Tally) -> None:
        ref = await node.process().store_table(TABLE, lease_seconds=60)
        node.clock.advance(61)
        tally.reads()
        assert await node.process().table(ref) == TABLE
        assert tally.reads() == {"memory": "miss", "shared": "stale", "disk": "miss", "durable": "hit"}

    @pytest.mark.parametrize("asked", ["by the settings", "by a stage"])
    async def test_damage_in_shared_memory_falls_through_and_is_removed(
        self, node: Node, tally: Tally, shm: Path, asked: str
    ) -> None:
        ref = await node.process().store_table(TABLE)
        segment = shm / f"noetl-{os.getuid()}-{ref.sha256}"
        facts = segment.stat()
        with segment.open("r+b") as file:
            file.seek(-200, 2)
            file.write(b"!")
        os.utime(segment, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        tally.reads()
        reader = node.process(verify_ipc=True) if asked == "by the settings" else node.process().verifying()
        assert await reader.table(ref) == TABLE
        assert tally.reads()["shared"] == "damaged"
        assert not segment.exists()

    async def test_a_full_budget_costs_the_copy_only(self, node: Node, tally: Tally) -> None:
        process = node.process()
        large = pa.table({"a": pa.array(range(2_000_000))})
        ref = await process.store_table(large)
        assert ref.ipc is None
        assert tally.counted[("writes", "shared", "refused")] == 1
        assert await node.process().table(ref) == large

    async def test_a_cache_that_fails_is_left_out_and_named_once(
        self, node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tally: Tally
    ) -> None:
        def broken(*_: Any, **__: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        nearer.say_once.cache_clear()
        offered = await node.process().store_table(TABLE)
        monkeypatch.setattr(Segments, "put", broken)
        monkeypatch.setattr(Segments, "get", broken)
        monkeypatch.setattr(DiskCache, "get", broken)
        tally.counted.clear()
        with caplog.at_level(logging.WARNING, "noetl.payloads"):
            ref = await node.process().store_table(TABLE)
            assert await node.process().table(offered) == TABLE
            assert await node.process().table(offered) == TABLE
        assert ref.ipc is None
        assert tally.reads() == {"memory": "miss", "shared": "error", "disk": "error", "durable": "hit"}
        assert sorted(record.message.split(":")[0] for record in caplog.records) == [
            "the disk tier of payloads cannot be used and is left out",
            "the shared tier of payloads cannot be used and is left out",
        ]

    async def test_json_rows_are_a_table_too(self, node: Node) -> None:
        process = node.process()
        rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
        packed = await process.store(b"".join(formats.json_pieces(rows)), media_type="application/json+zstd")
        plain = await process.store(b'[{"a":1}]', media_type="application/json")
        assert (await process.table(packed)).to_pylist() == rows
        assert (await process.table(plain)).to_pylist() == [{"a": 1}]

    @pytest.mark.parametrize("data", [b'{"a":1}', b"\x00\x01", b""])
    async def test_what_is_no_table_is_named(self, node: Node, data: bytes) -> None:
        ref = await node.process().store(data, media_type="text/plain")
        with pytest.raises(InvalidInput, match=r"payload 'noetl://acme/.*' \(text/plain\) is no table"):
            await node.process().table(ref)


class TestBatches:
    @pytest.fixture
    async def ref(self, node: Node) -> PayloadRef:
        return await node.process().store_table(pa.table({"a": pa.array(range(3_000_000)), "b": [0.5] * 3_000_000}))

    async def test_a_long_table_comes_in_batches(self, elsewhere: Node, ref: PayloadRef, tally: Tally) -> None:
        batches = [batch async for batch in elsewhere.process().batches(ref)]
        assert len(batches) > 3
        assert sum(batch.num_rows for batch in batches) == 3_000_000
        assert batches[-1]["a"][-1].as_py() == 2_999_999
        assert tally.reads() == {"memory": "miss", "shared": "miss", "disk": "miss", "durable": "hit"}

    async def test_nothing_is_given_before_the_digest_is_known(
        self, elsewhere: Node, ref: PayloadRef, objects: MemoryObjectStore
    ) -> None:
        key = payload_key("acme", ref.sha256)
        stored = bytearray(await objects.get(key))
        stored[-1] ^= 1
        await objects.put(key, bytes(stored), overwrite=True)
        with pytest.raises(IntegrityMismatch):
            await anext(elsewhere.process().batches(ref))

    async def test_what_is_near_is_used(self, node: Node, tally: Tally) -> None:
        ref = await node.process().store_table(TABLE)
        tally.reads()
        assert [batch.num_rows async for batch in node.process().batches(ref)] == [5000]
        assert tally.reads() == {"memory": "miss", "shared": "hit"}
        plain = await node.process().store(b"".join(formats.stream_pieces(TABLE)), media_type="x")
        assert [batch.num_rows async for batch in node.process().batches(plain)] == [5000]
        assert tally.reads() == {"memory": "miss", "shared": "miss", "disk": "hit"}


class TestOtherStores:
    async def test_another_store_shares_the_caches(self, node: Node, tally: Tally) -> None:
        process = node.process()
        other = PayloadStore(MemoryObjectStore(), "acme", "sales")
        ref = await other.store(DATA, media_type="text/csv")
        over = process.over(other)
        assert [await over.fetch(ref), await over.fetch(ref)] == [DATA, DATA]
        assert tally.reads()["memory"] == "hit"

    async def test_what_a_store_has_just_taken_is_offered(self, node: Node, tally: Tally) -> None:
        process = node.process()
        ref = await process.store(_pieces(DATA), media_type="text/csv")
        await process.keep(ref, DATA)
        tally.counted.clear()
        assert await node.process().fetch(ref) == DATA
        assert tally.reads() == {"memory": "miss", "disk": "hit"}


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


class TestPassedOn:
    """A table that lies in memory that processes share already is not copied into a segment."""

    @pytest.fixture
    def mapped(self, tmp_path: Path) -> pa.Table:
        table = TABLE.slice(0)
        written = write(table, 1 << 30, str(tmp_path))
        note(table, written.descriptor, 0, written.bytes)
        os.close(written.descriptor)
        return table

    async def test_it_is_handed_out_as_it_is(self, node: Node, mapped: pa.Table, shm: Path, tally: Tally) -> None:
        process = node.process()
        ref = await process.store_table(mapped)
        assert ref.ipc is None
        assert names(shm) == []
        tally.reads()
        assert await process.table(ref) is mapped
        assert tally.reads() == {"memory": "miss", "shared": "hit"}

    async def test_other_processes_read_the_store(self, node: Node, mapped: pa.Table, tally: Tally) -> None:
        ref = await node.process().store_table(mapped)
        tally.reads()
        assert (await node.process().table(ref)).equals(mapped)
        assert tally.reads()["durable"] == "hit"

    async def test_it_is_let_go_after_a_while(self, node: Node, mapped: pa.Table, tally: Tally) -> None:
        process = node.process()
        ref = await process.store_table(mapped)
        node.clock.advance(301)
        await node.opened[0].sweep()
        tally.reads()
        assert (await process.table(ref)).equals(mapped)
        assert tally.reads()["durable"] == "hit"

    async def test_one_that_is_too_large_becomes_a_segment(self, node: Node, tmp_path: Path, shm: Path) -> None:
        large = pa.table({"a": pa.array(range(600_000))})
        written = write(large, 1 << 30, str(tmp_path))
        note(large, written.descriptor, 0, written.bytes)
        os.close(written.descriptor)
        assert (await node.process().store_table(large)).ipc is not None
        assert names(shm) != []
