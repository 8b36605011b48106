"""What gauges say is bounded, and costs little however often somebody asks."""

from __future__ import annotations

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.outbox import MemoryOutbox
from noetl.observe.prometheus import PrometheusRecorder
from noetl.runtime.levels import MOST_OWNERS, OutboxLevels, Owned, backlog, backlog_detail
from noetl.runtime.stages.progress import StageProgress
from tests.unit.kernel.drafts import batch, draft


def stage(kind: str = "fanout", *, total: int | None = 10, done: int = 0, running: int = 0) -> StageProgress:
    return StageProgress(stage_id="1", step="s", kind=kind, status="OPEN", frames=done, frames_total=total,
                         frames_running=running, rows=0)  # fmt: skip


def test_without_stages_a_scaler_still_reads_a_number() -> None:
    assert backlog([]) == {("all", "all"): 0}
    assert backlog_detail([]) == {}


def test_frames_are_summed_by_kind_and_status() -> None:
    stages = [
        Owned("acme", "retail", stage(done=3, running=2)),
        Owned("acme", "retail", stage("loop", total=None, done=7, running=1)),
        Owned("globex", "ops", stage("reduce", total=2, done=1, running=1)),
    ]
    found = backlog(stages)
    assert found["fanout", "waiting"] == 5
    assert found["fanout", "running"] == 2
    assert found["loop", "waiting"] == 0, "nobody knows what a cursor will give"
    assert found["all", "running"] == 4
    assert found["all", "all"] == 9
    assert backlog_detail(stages)["acme", "retail", "loop", "running"] == 1
    assert backlog_detail(stages)["globex", "ops", "reduce", "waiting"] == 0


def test_owners_beyond_the_largest_are_one() -> None:
    stages = [Owned(f"t{number}", "o", stage(total=number + 1)) for number in range(MOST_OWNERS + 30)]
    found = backlog_detail(stages)
    assert len({labels[:2] for labels in found}) == MOST_OWNERS + 1
    assert found["other", "other", "fanout", "waiting"] == sum(range(1, 31))
    assert ("t0", "o", "fanout", "waiting") not in found
    assert sum(found.values()) == backlog(stages)["all", "all"]


async def test_the_outbox_is_counted_no_more_than_every_so_often() -> None:
    clock = VirtualClock(1_763_000_000_000_000)
    ledger = MemoryLedger(clock)
    outbox, recorder = MemoryOutbox(ledger, clock), PrometheusRecorder()
    levels = OutboxLevels(outbox, clock, every=3600)
    await ledger.append([batch(draft())])
    clock.advance(40)
    await levels.set(recorder)
    await ledger.append([batch(draft())])
    await levels.set(recorder)
    text = recorder.text().decode()
    assert "noetl_outbox_pending 1.0" in text
    assert "noetl_outbox_oldest_seconds 40.0" in text


async def test_an_outbox_that_was_published_has_no_age() -> None:
    clock = VirtualClock(1_763_000_000_000_000)
    ledger = MemoryLedger(clock)
    outbox, recorder = MemoryOutbox(ledger, clock), PrometheusRecorder()
    await ledger.append([batch(draft())])
    await outbox.mark_published("a", [row.position for row in await outbox.claim("a")])
    await OutboxLevels(outbox, clock).set(recorder)
    assert "noetl_outbox_oldest_seconds 0.0" in recorder.text().decode()
