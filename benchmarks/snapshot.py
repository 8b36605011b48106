"""A replay that begins at a snapshot near the end, against one that begins at the first event.

Each replay runs in a process of its own, so that its peak memory is its own too.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import drafts
from benchmarks.harness import Measurement, alternate, workplace
from noetl.adapters.sqlite import Database, SqliteLedger
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.replay.service import Replayer
from noetl.runtime.clock import SystemClock

__all__ = ["snapshot_tail"]

_EXECUTION = 9
_STAGE = 10
_TAIL = 100
_CHUNK = 500


def snapshot_tail(events: int = 1_000_000) -> Measurement:
    """The small state first; `detail` has the state with one row per five events, and the memory of each."""
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        small = _measure(Path(folder) / "small.db", "heartbeats", events)
        large = _measure(Path(folder) / "large.db", "frames", events)
    small.detail["row_per_five_events"] = {"ratio": large.ratio, "ours": large.ours, "reference": large.reference,
                                           **large.detail}  # fmt: skip
    return small


def _measure(path: Path, shape: str, events: int) -> Measurement:
    asyncio.run(_build(path, shape, events))
    memory: dict[str, float] = {}

    def run(snapshots: bool) -> float:
        answer = _replay_elsewhere(path, snapshots)
        name = "snapshot_peak_mb" if snapshots else "full_peak_mb"
        memory[name] = max(memory.get(name, 0.0), answer["peak_mb"])
        return float(answer["seconds"])

    found = alternate(
        "snapshot_tail", "s", lambda _: run(True), lambda _: run(False), detail={"events": events, "tail": _TAIL}
    )
    found.detail.update(memory)
    return found


async def _build(path: Path, shape: str, events: int) -> None:
    database = Database(path)
    clock = SystemClock()
    ledger = await SqliteLedger(database, clock).open()
    root = drafts.execution(_EXECUTION)
    await ledger.append([Batch(stream=root, drafts=drafts.start(_EXECUTION))])
    stream = drafts.stage(_EXECUTION, _STAGE)
    left = events - 2 - _TAIL
    while left > 0:
        await ledger.append([Batch(stream=stream, drafts=_shape(shape, min(left, _CHUNK)))])
        left -= _CHUNK
    store = SqliteProjectionStore(database, clock)
    await Replayer(ledger, store, default_registry(), clock).snapshot(Stream(root.tenant_id, root.stream_id))
    await ledger.append([Batch(stream=stream, drafts=_shape(shape, _TAIL))])
    database.close()


def _shape(shape: str, count: int) -> list[Draft]:
    if shape == "frames":
        groups = (drafts.frame(_EXECUTION, _STAGE, number, offset=number * 5) for number in range(-(-count // 5)))
        return [draft for group in groups for draft in group][:count]
    one = drafts.frame(_EXECUTION, _STAGE, 0)[2]
    return [_with_frame(one, 77) for _ in range(count)]


def _with_frame(draft: Draft, frame_id: int) -> Draft:
    import msgspec

    return msgspec.structs.replace(draft, frame_id=frame_id)


def _replay_elsewhere(path: Path, snapshots: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.snapshot", str(path), "snapshots" if snapshots else "full"]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer


async def _replay(path: Path, snapshots: bool) -> None:
    import resource
    import time

    database = Database(path)
    clock = SystemClock()
    ledger = await SqliteLedger(database, clock).open()
    replayer = Replayer(ledger, SqliteProjectionStore(database, clock), default_registry(), clock)
    begun = time.perf_counter()
    replayed = await replayer.replay(drafts.execution(_EXECUTION), snapshots=snapshots)
    checksum = replayed.checksum()
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if (replayed.snapshot is not None) != snapshots:
        raise SystemExit(f"expected to use a snapshot: {snapshots}; rejected: {replayed.rejected}")
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "checksum": checksum, "folded": replayed.events_folded}))
    database.close()


if __name__ == "__main__":
    asyncio.run(_replay(Path(sys.argv[1]), sys.argv[2] == "snapshots"))
