"""Tables in shared memory: whole or not there, bounded, gone with their leases and their producers."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.kernel.event import IpcHint, PayloadRef
from noetl.payloads.locks import locked
from noetl.payloads.schemas import schema_digest
from noetl.payloads.segment import open_segment
from noetl.payloads.shm import ROOT, Segments, is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="this platform has no /dev/shm")

MIB = 1 << 20
START = 1_800_000_000_000_000
TABLE = pa.table({"id": list(range(1000)), "name": [f"n{number}" for number in range(1000)]})
SHA = hashlib.sha256(b"orders").hexdigest()
OTHER = hashlib.sha256(b"others").hexdigest()


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="noetl-test-") as folder:
        yield Path(folder)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def segments(root: Path, clock: VirtualClock) -> Iterator[Segments]:
    opened = another(root, clock)
    yield opened
    opened.close()


def another(root: Path, clock: VirtualClock, *, node_id: str = "node-1", budget: int = 64 * MIB) -> Segments:
    return Segments.open(clock, node_id=node_id, budget_bytes=budget, root=root)


def ref(hint: IpcHint | None, sha256: str = SHA) -> PayloadRef:
    return PayloadRef(uri=f"noetl://a/b/payloads/sha256/{sha256}", sha256=sha256, media_type="m", bytes=1, ipc=hint)


def put(segments: Segments, sha256: str = SHA, table: pa.Table = TABLE, *, lease: float = 60) -> PayloadRef:
    hint = segments.put(sha256, table, lease_seconds=lease)
    assert hint is not None
    return ref(hint, sha256)


def read(segments: Segments, wanted: PayloadRef, *, verify: bool = False) -> pa.Table:
    found = segments.get(wanted, verify=verify)
    assert isinstance(found, pa.Table)
    return found


def names(root: Path) -> list[str]:
    return sorted(path.name.removeprefix(f"noetl-{os.getuid()}-").partition("-")[0] for path in root.iterdir())


def only_segment(root: Path) -> Path:
    [path] = [
        path
        for path in root.iterdir()
        if "-" not in path.name.removeprefix(f"noetl-{os.getuid()}-") and path.stat().st_size
    ]
    return path


class TestSharing:
    def test_a_table_comes_back_without_a_copy(self, segments: Segments) -> None:
        wanted = put(segments)
        before = pa.total_allocated_bytes()
        table = read(segments, wanted)
        assert pa.total_allocated_bytes() == before
        assert table == TABLE
        assert read(segments, wanted, verify=True) == TABLE

    def test_the_hint_says_what_a_reader_needs(self, segments: Segments) -> None:
        hint = put(segments).ipc
        assert hint is not None
        assert (hint.node_id, hint.row_count) == ("node-1", 1000)
        assert hint.shm_name == f"/noetl-{os.getuid()}-{SHA}"
        assert hint.schema_digest == schema_digest(TABLE.schema)
        assert hint.lease_expires_at == "2027-01-15T08:01:00.000000Z"

    def test_the_bytes_are_as_documented(self, segments: Segments, root: Path) -> None:
        hint = put(segments).ipc
        assert hint is not None
        data = only_segment(root).read_bytes()
        assert data[:8] == b"NOETLIPC"
        assert int.from_bytes(data[8:12], "little") == 1
        length = int.from_bytes(data[12:20], "little")
        assert (length, len(data)) == (hint.byte_length, 64 + length + 32)
        assert data[20:52].hex() == hint.schema_digest
        assert data[52:64].hex() == hint.producer
        assert pa.ipc.open_stream(data[64 : 64 + length]).read_all() == TABLE
        assert data[64 + length :] == hashlib.sha256(data[: 64 + length]).digest()

    @pytest.mark.parametrize(
        "table",
        [
            pa.table({}),
            TABLE.slice(0, 0),
            TABLE.slice(7, 3),
            pa.concat_tables([TABLE, TABLE]),
            pa.table({"a": pa.array(["x", None, "x"]).dictionary_encode()}),
            pa.table({"a": [[1], [], None]}),
            TABLE.replace_schema_metadata({"k": "v"}),
        ],
        ids=["no columns", "no rows", "slice", "chunks", "dictionary", "lists", "metadata"],
    )
    def test_any_table_can_be_shared(self, segments: Segments, table: pa.Table) -> None:
        found = read(segments, put(segments, table=table), verify=True)
        assert found.equals(table, check_metadata=True)

    def test_a_view_outlives_its_segment(self, segments: Segments, root: Path) -> None:
        table = read(segments, put(segments))
        segments.close()
        assert names(root) == ["lock"]
        gc.collect()
        assert table == TABLE

    def test_nobody_else_can_read_it(self, segments: Segments, root: Path) -> None:
        put(segments)
        assert {path.stat().st_mode & 0o777 for path in root.iterdir()} == {0o600}

    def test_a_table_that_is_shared_already_is_not_written_again(
        self, segments: Segments, root: Path, clock: VirtualClock
    ) -> None:
        first = put(segments)
        inode = only_segment(root).stat().st_ino
        clock.advance(40)
        other = another(root, clock)
        again = put(other)
        assert only_segment(root).stat().st_ino == inode
        clock.advance(55)
        assert segments.get(first) == "stale"
        assert read(segments, again) == TABLE
        other.close()
        assert read(segments, again) == TABLE

    def test_a_table_in_other_pieces_is_the_same_table(self, segments: Segments) -> None:
        put(segments)
        pieces = pa.concat_tables([TABLE.slice(0, 400), TABLE.slice(400)])
        assert read(segments, put(segments, table=pieces)) == TABLE

    def test_threads_that_share_one_table_all_get_it(self, segments: Segments, root: Path) -> None:
        hints: list[IpcHint | None] = []
        threads = [threading.Thread(target=lambda: hints.append(segments.put(SHA, TABLE))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert any(hints)
        assert all(read(segments, ref(hint)) == TABLE for hint in hints if hint is not None)
        assert names(root).count("draft") == 0


class TestFallingThrough:
    def test_no_hint_and_no_segment(self, segments: Segments) -> None:
        wanted = put(segments)
        assert segments.get(ref(None)) == "miss"
        assert segments.drop(SHA)
        assert not segments.drop(SHA)
        assert segments.get(wanted) == "miss"

    def test_another_machine(self, segments: Segments, root: Path, clock: VirtualClock) -> None:
        assert another(root, clock, node_id="node-2").get(put(segments)) == "foreign"

    @pytest.mark.parametrize("name", [f"/noetl-999999-{SHA}", "/../etc/passwd", f"/noetl-{os.getuid()}-{OTHER}"])
    def test_a_name_that_is_not_derived_from_the_payload(self, segments: Segments, name: str) -> None:
        put(segments, OTHER)
        hint = put(segments).ipc
        assert hint is not None
        assert segments.get(ref(msgspec.structs.replace(hint, shm_name=name))) == "foreign"

    def test_a_lease_that_is_over(self, segments: Segments, clock: VirtualClock) -> None:
        wanted = put(segments, lease=60)
        clock.advance(59)
        assert read(segments, wanted) == TABLE
        clock.advance(1)
        assert segments.get(wanted) == "stale"
        assert wanted.ipc is not None
        undated = msgspec.structs.replace(wanted.ipc, lease_expires_at=None)
        assert read(segments, ref(undated)) == TABLE  # in its grace
        clock.advance(30)
        assert segments.get(ref(undated)) == "stale"
        garbled = msgspec.structs.replace(wanted.ipc, lease_expires_at="soon")
        assert segments.get(ref(garbled)) == "stale"

    @pytest.mark.parametrize("place", [0, 8, 12, 20, 80], ids=["magic", "version", "length", "schema", "stream"])
    def test_a_damaged_header_or_stream_is_found_and_removed(self, segments: Segments, root: Path, place: int) -> None:
        wanted = put(segments)
        with only_segment(root).open("r+b") as file:
            file.seek(place)
            file.write(b"\xfe\xfd\xfc\xfb")
        only = only_segment(root)
        os.utime(only, ns=(START * 2000, START * 2000))
        assert segments.get(wanted) == "damaged"
        assert segments.get(wanted) == "miss"
        assert put(segments) is not None
        assert read(segments, wanted) == TABLE

    @pytest.mark.parametrize("size", [0, 63, 64, 1000])
    def test_a_short_segment_is_found_and_removed(self, segments: Segments, root: Path, size: int) -> None:
        wanted = put(segments)
        only = only_segment(root)
        os.truncate(only, size)
        os.utime(only, ns=(START * 2000, START * 2000))
        assert segments.get(wanted) == "damaged"
        assert segments.get(wanted) == "miss"

    def test_other_content_is_found_when_asked_for(self, segments: Segments, root: Path) -> None:
        wanted = put(segments)
        only = only_segment(root)
        with only.open("r+b") as file:
            file.seek(-100, 2)
            file.write(b"!")
        os.utime(only, ns=(START * 2000, START * 2000))
        assert isinstance(segments.get(wanted), pa.Table)
        assert segments.get(wanted, verify=True) == "damaged"
        assert segments.get(wanted) == "miss"

    def test_a_schema_other_than_the_hint_says(self, segments: Segments) -> None:
        hint = put(segments).ipc
        assert hint is not None
        assert segments.get(ref(msgspec.structs.replace(hint, schema_digest="0" * 64))) == "damaged"

    def test_a_link_is_not_followed(self, segments: Segments, root: Path) -> None:
        wanted = put(segments)
        path = only_segment(root)
        (root / "elsewhere").write_bytes(path.read_bytes())
        path.unlink()
        path.symlink_to(root / "elsewhere")
        assert segments.get(wanted) == "miss"

    def test_a_write_that_fails_says_why_and_leaves_no_draft(
        self, segments: Segments, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(buffer: pa.Buffer) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(pa, "FixedSizeBufferWriter", fail)
        with pytest.raises(OSError, match="Input/output error"):
            segments.put(SHA, TABLE)
        assert names(root) == ["lock", "owner"]


class TestBudget:
    def test_what_does_not_fit_is_not_admitted(self, root: Path, clock: VirtualClock) -> None:
        size = open_size(root, clock)
        one, two = another(root, clock, budget=size * 2), another(root, clock, budget=size * 2)
        put(one)
        put(two, OTHER)
        third = hashlib.sha256(b"third").hexdigest()
        assert one.put(third, TABLE) is None
        assert two.put(third, TABLE) is None
        assert names(root).count("draft") == 0
        assert one.bytes_in_use == size * 2
        two.close()
        assert one.put(third, TABLE) is not None
        one.close()

    def test_the_end_of_a_lease_makes_room(self, root: Path, clock: VirtualClock) -> None:
        only = another(root, clock, budget=open_size(root, clock))
        put(only, lease=60)
        clock.advance(89)
        assert only.put(OTHER, TABLE) is None
        clock.advance(1)
        put(only, OTHER)
        only.close()

    def test_drafts_count(self, root: Path, clock: VirtualClock) -> None:
        size = open_size(root, clock)
        one = another(root, clock, budget=size)
        draft = one._reserve(size)
        assert draft is not None
        assert another(root, clock, budget=size).put(SHA, TABLE) is None
        os.close(draft[1])
        one.close()

    @pytest.mark.parametrize("number", [28, 12], ids=["ENOSPC", "ENOMEM"])
    def test_memory_that_is_not_there_costs_the_copy_only(
        self, segments: Segments, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def full(fd: int, offset: int, length: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("noetl.payloads.shm.os.posix_fallocate", full)
        assert segments.put(SHA, TABLE) is None
        assert names(root) == ["lock", "owner"]

    def test_a_holder_that_was_stopped_stops_nobody(self, segments: Segments, root: Path) -> None:
        with locked(root / f"noetl-{os.getuid()}-lock"):
            assert segments.put(SHA, TABLE) is None
            assert segments.sweep() == (0, 0)
        put(segments)


def open_size(root: Path, clock: VirtualClock) -> int:
    """What one copy of TABLE takes."""
    probe = another(root, clock)
    put(probe)
    size = probe.bytes_in_use
    probe.close()
    return size


PRODUCER = """
import ctypes, os, signal, sys, time
from pathlib import Path
import msgspec
import pyarrow as pa
from noetl.payloads import shm

class Clock:
    def now(self): return time.time_ns() // 1000

segments = shm.Segments.open(Clock(), node_id="node-1", root=Path(sys.argv[1]))
table = pa.table({"id": list(range(200_000))})
if sys.argv[2] == "die-in-the-middle":
    def half(buffer):
        ctypes.memset(buffer.address, 120, buffer.size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    pa.FixedSizeBufferWriter = half
if sys.argv[2] == "die-before-the-draft-goes":
    def link(one, other, link=os.link):
        link(one, other)
        os.kill(os.getpid(), signal.SIGKILL)
    os.link = link
hint = segments.put(sys.argv[3], table, lease_seconds=600)
print(msgspec.json.encode(hint).decode(), flush=True)
sys.stdin.read()
"""


class WallClock:
    def now(self) -> int:
        import time

        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def producer(root: Path, how: str, sha256: str = SHA) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRODUCER, str(root), how, sha256]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def local(root: Path) -> Segments:
    return Segments.open(WallClock(), node_id="node-1", root=root)


class TestProcesses:
    def test_another_process_reads_it_without_a_copy(self, root: Path) -> None:
        with producer(root, "live") as other:
            assert other.stdout is not None
            hint = msgspec.json.decode(other.stdout.readline(), type=IpcHint)
            before = pa.total_allocated_bytes()
            table = read(local(root), ref(hint), verify=True)
            assert pa.total_allocated_bytes() == before
            assert table["id"][199_999].as_py() == 199_999
            assert local(root).sweep() == (0, 0)
            other.kill()
            other.wait()
        assert local(root).bytes_in_use == 0
        assert names(root) == ["lock"]
        assert table["id"].to_pylist() == list(range(200_000))

    @pytest.mark.parametrize("how", ["die-in-the-middle", "die-before-the-draft-goes"])
    def test_a_producer_that_is_killed_leaves_nothing(self, root: Path, how: str) -> None:
        with producer(root, how) as other:
            assert other.wait(60) == -signal.SIGKILL
        survivor = Segments(WallClock(), node_id="node-1", root=root)
        assert "draft" in names(root)
        hint = IpcHint(node_id="node-1", shm_name=f"/noetl-{os.getuid()}-{SHA}")
        found = survivor.get(ref(hint), verify=True)
        assert found == "miss" if how == "die-in-the-middle" else isinstance(found, pa.Table)
        local(root)
        assert names(root) == ["lock"]

    def test_the_dead_make_room_for_the_living(self, root: Path) -> None:
        survivor = Segments.open(WallClock(), node_id="node-1", budget_bytes=2 * MIB, root=root)
        with producer(root, "live", OTHER) as other:
            assert other.stdout is not None
            other.stdout.readline()
            table = pa.table({"id": list(range(100_000))})
            assert survivor.put(SHA, table) is None
            other.kill()
            other.wait()
        assert survivor.put(SHA, table) is not None
        survivor.close()

    def test_processes_keep_the_budget_together(self, root: Path) -> None:
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=_crowd, args=(root, number)) for number in range(3)]
        probe = Segments(WallClock(), node_id="node-1", root=root)
        for worker in workers:
            worker.start()
        peak = 0
        while any(worker.is_alive() for worker in workers):
            peak = max(peak, probe.bytes_in_use)
        for worker in workers:
            worker.join(60)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        assert 0 < peak <= 4 * 16_000
        assert names(root) == ["lock"]

    def test_a_fork_takes_nothing_away(self, root: Path) -> None:
        segments = local(root)
        hint = segments.put(SHA, TABLE)
        child = subprocess.run([sys.executable, "-c", FORK, str(root)], check=True, capture_output=True, text=True)
        assert child.stdout.strip() == "still there: True"
        assert read(segments, ref(hint)) == TABLE
        segments.close()


def _crowd(root: Path, worker: int) -> None:
    """Share more than fits, for a moment each; whatever is admitted reads as it was written."""
    segments = Segments.open(WallClock(), node_id="node-1", budget_bytes=4 * 16_000, grace_seconds=0, root=root)
    for number in range(60):
        sha256 = hashlib.sha256(f"{worker}/{number}".encode()).hexdigest()
        hint = segments.put(sha256, TABLE, lease_seconds=0.02)
        found = segments.get(ref(hint, sha256), verify=True)
        assert isinstance(found, str) or found == TABLE
        assert found != "damaged"
    segments.close()


FORK = """
import os, sys, time
from pathlib import Path
import pyarrow as pa
from noetl.payloads.shm import Segments

class Clock:
    def now(self): return time.time_ns() // 1000

root = Path(sys.argv[1])
segments = Segments.open(Clock(), node_id="node-1", root=root)
assert segments.put("ab" * 32, pa.table({"a": [1]}))
if (child := os.fork()) == 0:
    segments.close()
    os._exit(0)
os.waitpid(child, 0)
print("still there:", any(path.name.endswith("ab" * 32) for path in root.iterdir()))
segments.close()
"""


class TestCleaning:
    def test_a_producer_whose_memory_was_cleaned_goes_on(
        self, segments: Segments, root: Path, clock: VirtualClock
    ) -> None:
        put(segments)
        for path in root.iterdir():
            path.unlink()
        wanted = put(segments)
        another(root, clock)
        assert read(segments, wanted) == TABLE

    def test_what_a_sweep_would_remove_can_be_counted_first(
        self, segments: Segments, root: Path, clock: VirtualClock
    ) -> None:
        assert segments.put(SHA, TABLE, lease_seconds=60) is not None
        assert segments.leftovers() == (0, 0)
        clock.advance(91)
        counted = segments.leftovers()
        assert counted.segments == 1
        assert segments.leftovers() == counted == segments.sweep()
        assert segments.leftovers() == (0, 0)

    def test_a_file_that_is_no_segment_does_not_survive_a_sweep(self, segments: Segments, root: Path) -> None:
        (root / f"noetl-{os.getuid()}-{OTHER}").write_bytes(b"")
        (root / "somebody-elses").write_bytes(b"x")
        put(segments)
        segments.sweep()
        assert sorted(names(root)) == sorted([SHA, "lock", "owner", "somebody"])

    def test_closing_twice_is_closing_once(self, segments: Segments) -> None:
        put(segments)
        segments.close()
        segments.close()

    def test_an_open_segment_is_this_users_or_nobodys(self, root: Path) -> None:
        assert open_segment(root) is None
        assert open_segment(root / "missing") is None

    def test_a_platform_without_shared_memory_is_told_apart(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert not is_available(tmp_path / "missing")
        monkeypatch.setattr(sys, "platform", "darwin")
        assert not is_available(tmp_path)
