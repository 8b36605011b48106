"""The nearer tiers: opened when they are needed, within their budgets, and clean after the next start."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.payloads import caches as module
from noetl.payloads.caches import SWEEP_SECONDS, Caches, Level
from noetl.payloads.shm import ROOT, Segments, is_available
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.settings import Bytes, Payloads

pytestmark = pytest.mark.skipif(not is_available(), reason="this platform has no /dev/shm")

START = 1_800_000_000_000_000
MIB = 1 << 20
TABLE = pa.table({"id": list(range(5000))})
SMALL = Payloads(memory=Bytes(MIB), shared_memory=Bytes(8 * MIB), disk_cache=Bytes(8 * MIB))
OFF = Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0))


@pytest.fixture
def shm() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="noetl-test-") as folder:
        yield Path(folder)


def tiers(caches: Caches) -> PayloadTiers:
    return PayloadTiers(PayloadStore(MemoryObjectStore(), "acme", "sales"), caches)


def names(shm: Path) -> list[str]:
    return [path.name for path in shm.iterdir()]


def segments(shm: Path) -> list[str]:
    return [name for name in names(shm) if not name.endswith("lock")]


async def test_nothing_is_touched_before_it_is_needed(shm: Path, tmp_path: Path) -> None:
    caches = Caches(SMALL, VirtualClock(START), disk_directory=tmp_path / "cache", shared_root=shm)
    await caches.sweep()
    await caches.close()
    assert names(shm) == []
    assert not (tmp_path / "cache").exists()


def test_a_start_imports_no_arrow() -> None:
    code = "import sys, noetl.runtime.wiring; print([m for m in sys.modules if m in ('pyarrow', 'noetl.payloads.shm')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_no_budget_no_tier(shm: Path, tmp_path: Path) -> None:
    caches = Caches(OFF, VirtualClock(START), disk_directory=tmp_path / "cache", shared_root=shm)
    bare = tiers(caches)
    ref = await bare.store_table(TABLE)
    assert ref.ipc is None
    assert await bare.table(ref) == TABLE
    assert await bare.fetch(ref)
    assert await bare.levels() == []
    assert (names(shm), (tmp_path / "cache").exists()) == ([], False)


async def test_each_tier_says_how_full_it_is(shm: Path, tmp_path: Path) -> None:
    caches = Caches(SMALL, VirtualClock(START), disk_directory=tmp_path / "cache", shared_root=shm)
    full = tiers(caches)
    ref = await full.store(b"x" * 1000, media_type="text/plain")
    await full.fetch(ref)
    assert (await full.store_table(TABLE)).ipc is not None
    levels = {level.tier: level for level in await full.levels()}
    assert levels["memory"] == Level("memory", 1000, MIB)
    assert levels["disk"] == Level("disk", 1000, 8 * MIB)
    assert (levels["shared"].bytes > 40_000, levels["shared"].budget) == (True, 8 * MIB)
    await caches.close()
    assert segments(shm) == []


async def test_encrypted_payloads_are_not_copied_to_the_disk(shm: Path, tmp_path: Path) -> None:
    sealed = Payloads(encrypt=True, shared_memory=Bytes(8 * MIB))
    caches = Caches(sealed, VirtualClock(START), disk_directory=tmp_path / "cache", shared_root=shm)
    await tiers(caches).store(b"secret", media_type="text/plain")
    assert not (tmp_path / "cache").exists()


async def test_a_platform_without_shared_memory_says_so_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    module.say_once.cache_clear()
    missing = tmp_path / "none"
    with caplog.at_level(logging.WARNING, "noetl.payloads"):
        for _ in range(2):
            assert (await tiers(Caches(SMALL, VirtualClock(START), shared_root=missing)).store_table(TABLE)).ipc is None
    assert [record.message for record in caplog.records] == [
        f"shared memory is off: there is no {missing}; tables are read from the store instead"
    ]


async def test_a_disk_cache_that_cannot_be_opened_is_left_out(
    caplog: pytest.LogCaptureFixture, shm: Path, tmp_path: Path
) -> None:
    module.say_once.cache_clear()
    (tmp_path / "cache").write_text("in the way")
    caches = Caches(SMALL, VirtualClock(START), disk_directory=tmp_path / "cache", shared_root=shm)
    with caplog.at_level(logging.WARNING, "noetl.payloads"):
        ref = await tiers(caches).store(b"x", media_type="text/plain")
        assert ref.bytes == 1
        assert await caches.disk() is None
    assert [record.message.split(":")[0] for record in caplog.records] == ["the disk cache of payloads is off"]


KILLED = """
import asyncio, os, sys
from pathlib import Path
import pyarrow as pa
from noetl.adapters.memory.clock import VirtualClock
from noetl.payloads.shm import Segments
segments = Segments.open(VirtualClock({start}), node_id="n", root=Path(sys.argv[1]))
assert segments.put("ab" * 32, pa.table({{"id": list(range(5000))}}), lease_seconds=1e6) is not None
print("shared", flush=True)
os.kill(os.getpid(), {signal})
"""


def leave_behind(shm: Path) -> None:
    code = KILLED.format(start=START, signal=signal.SIGKILL.value)
    done = subprocess.run([sys.executable, "-c", code, shm], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "shared\n")
    assert segments(shm)


async def test_what_a_killed_process_has_left_is_gone_after_the_next_start(shm: Path) -> None:
    leave_behind(shm)
    caches = Caches(SMALL, VirtualClock(START), shared_root=shm)
    await caches.sweep()
    assert segments(shm) == []
    await caches.close()


async def test_it_is_gone_while_others_run_too(shm: Path) -> None:
    clock = VirtualClock(START)
    caches = Caches(SMALL, clock, shared_root=shm)
    await caches.sweep()
    sweeping = asyncio.create_task(caches.keep_swept())
    await asyncio.to_thread(leave_behind, shm)
    clock.advance(SWEEP_SECONDS)
    while segments(shm):  # noqa: ASYNC110 - another process's files, which nobody announces
        await asyncio.sleep(0.01)
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    await caches.close()


async def test_a_sweep_that_fails_costs_nothing_else(
    shm: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    module.say_once.cache_clear()
    caches = Caches(SMALL, VirtualClock(START), shared_root=shm)
    assert (await tiers(caches).store_table(TABLE)).ipc is not None
    monkeypatch.setattr(Segments, "sweep", broken)
    with caplog.at_level(logging.WARNING, "noetl.payloads"):
        await caches.sweep()
    assert [record.message.split(":")[0] for record in caplog.records] == ["shared memory cannot be swept"]
    monkeypatch.undo()
    await caches.close()


async def test_others_leftovers_are_none_of_ours(shm: Path) -> None:
    (shm / f"noetl-{os.getuid() + 1}-{'ab' * 32}").write_bytes(b"x")
    caches = Caches(SMALL, VirtualClock(START), shared_root=shm)
    await caches.sweep()
    assert names(shm) == [f"noetl-{os.getuid() + 1}-{'ab' * 32}"]
