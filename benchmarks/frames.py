"""Frames through the keeper of a stage, against raw `sqlite3` that writes the rows of the same events.

Eight slots claim and commit 2,000 tiny frames by direct call. The reference commits the same rows in as many
transactions as the keeper has needed, with the same durability: what is between the two is the frame protocol.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.append import rows_of, write_raw
from benchmarks.drafts import TENANT
from benchmarks.harness import Measurement, alternate, settle, workplace
from noetl.adapters.sqlite import Database, SqliteLedger
from noetl.data.frame.protocol import (
    FrameOutcome,
    FramePlane,
    Pinned,
    Policy,
    Slice,
    SlotReport,
    StagePlan,
)
from noetl.data.frame.state import Author
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.names import Home
from noetl.runtime.clock import MonotonicClock, SystemClock
from noetl.runtime.stages.desk import Desk
from noetl.runtime.stages.keeper import StageKeeper
from noetl.runtime.stages.placement import Placement
from noetl.runtime.stages.plane import StageServices

__all__ = ["frames"]

_FRAMES = 2000
_SLOTS = 8
_AT_ONCE = 8
_KEY = b"k" * 32
_REF = PayloadRef(
    uri=f"noetl://{TENANT}/default/payloads/sha256/{'0' * 64}", sha256="0" * 64, media_type="x/y", bytes=1
)


def frames() -> Measurement:
    """Frames a second, of bodies that do nothing; the reference is the same rows in the same number of commits."""
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        place = Path(folder)
        appends: dict[int, int] = {}

        def ours(number: int) -> float:
            path = place / f"ours{number}.db"
            seconds, appends[number] = asyncio.run(_run(path, number))
            return _FRAMES / seconds

        def reference(number: int) -> float:
            path = place / f"ours{number}.db"
            rows: dict[str, list[tuple[Any, ...]]] = rows_of(path)
            per_batch = -(-len(rows["event"]) // appends[number])
            return _FRAMES / write_raw(place / f"raw{number}.db", path, rows, per_batch)

        detail: dict[str, Any] = {"frames": _FRAMES, "slots": _SLOTS, "claimed_at_once": _AT_ONCE}
        found = alternate("frames", "frames/s", ours, reference, detail=detail)
        found.detail["appends"] = list(appends.values())[1:]
        return found


class _Idle:
    """Slots whose bodies do nothing."""

    def place(self, plan: StagePlan, rows: int | None, frames: int = 0) -> Placement:
        return Placement(asked="worker", host="worker", reason="nothing is to be run")

    async def run(self, plan: StagePlan, plane: FramePlane, slots: Sequence[int]) -> None:
        async with asyncio.TaskGroup() as group:
            for slot in slots:
                group.create_task(_drain(plane, slot))


async def _drain(plane: FramePlane, slot: int) -> None:
    worker = f"bench/{slot}"
    while (claimed := await plane.claim(slot, worker, most=_AT_ONCE)).frames:
        outcomes = [
            FrameOutcome(frame_id=frame.frame_id, token=frame.token, rows=1, outcomes={"ok": 1}, output=_REF)
            for frame in claimed.frames
        ]
        await plane.commit(worker, tuple(outcomes))
    await plane.finish(worker, SlotReport(slot=slot))


async def _run(path: Path, number: int) -> tuple[float, int]:
    database = Database(path)
    ledger = await SqliteLedger(database, SystemClock(), mac_key=_KEY).open()
    plan = StagePlan(
        tenant=TENANT, project="default", execution_id=1000 + number, stage_id=7, command_id=8, step="load", epoch=1,
        kind="fanout", slots=_SLOTS, policy=Policy(), home=Home(env="dev", region="local", cell="c"),
        document="", file="", entry="start",
    )  # fmt: skip
    appends = 0

    def count(_: Sequence[Envelope]) -> None:
        nonlocal appends
        appends += 1

    async def pin(_: StagePlan, __: PayloadRef | None) -> Pinned:
        return Pinned(ref=_REF, slices=tuple(Slice(part={"n": n}, rows=1) for n in range(_FRAMES)))

    author = Author(organization_id="default", principal="bench", producer="noetl://tenant/default")
    desk = Desk(plan, author, ledger, SystemClock(), MonotonicClock(), "k", resolve=_same, on_events=count)
    services = StageServices(tell=_nothing, recorded=_same, credential=_nothing)
    keeper = StageKeeper(desk, services, MonotonicClock(), pin=pin, look=_on)
    settle()
    begun = time.perf_counter()
    ending = await keeper.run(_Idle())
    seconds = time.perf_counter() - begun
    if ending.table.tally.stats.frames != _FRAMES or ending.error is not None:
        raise RuntimeError(f"{ending.table.tally.stats} {ending.error}")
    await ledger.close()
    database.close()
    return seconds, appends


async def _same(values: Json) -> Json:
    return values


async def _nothing(_: object) -> None:
    return None


async def _on() -> Literal["on"]:
    return "on"
