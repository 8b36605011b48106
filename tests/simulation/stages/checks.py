"""What must hold when a stage has ended, whatever has happened to those who ran and kept it."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from noetl.data.frame.state import FrameState
from noetl.data.frame.table import FrameTable
from noetl.kernel.event import Draft, Envelope
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.runtime.sealing import measure
from noetl.runtime.stages.keeper import Ending
from tests.scribe import fold_all
from tests.simulation.stages.world import StageWorld
from tests.stagework import EXECUTION, STAGE, TENANT, reference

__all__ = ["check_stage"]

_ENDS = ("frame.committed", "frame.failed")


async def check_stage(world: StageWorld, ending: Ending) -> None:
    """Everything."""
    events = await world.events()
    unreachable = world.schedule.lossy > 0 or world.schedule.deadly > 0
    require(ending.error is None or unreachable, f"it ended with {ending.error}, though every slot could be reached")
    if not unreachable and not world.schedule.slow and not world.schedule.outside:
        failed = [event.payload for event in events if event.event_type == "frame.failed"]
        require(not failed, f"nobody but keepers was lost, and yet a frame has failed: {failed[:1]}")
    _check_histories(world, ending, events)
    _check_answers(world, events)
    _check_totals(world, ending, events)
    _check_memory(world, ending, events)
    await _check_seal(world, ending)
    _check_rows(await _all(world))


def require(holds: bool, what: str) -> None:
    """An invariant."""
    if not holds:
        raise AssertionError(what)


def _check_histories(world: StageWorld, ending: Ending, events: list[Envelope]) -> None:
    """Each frame: begun, perhaps given up and begun again, and ended once; nothing happens to it afterwards."""
    told: dict[int, list[Envelope]] = defaultdict(list)
    for event in events:
        if event.frame_id is not None:
            told[event.frame_id].append(event)
    for frame_id, story in told.items():
        signs = "".join({"frame.dispatched": "d", "frame.started": "s", "frame.abandoned": "a"}.get(e.event_type, "e")
                        for e in story)  # fmt: skip
        attempts = [event.attempt for event in story if event.event_type == "frame.dispatched"]
        require(attempts == list(range(1, len(attempts) + 1)), f"frame {frame_id} has the attempts {attempts}")
        ended = signs.count("e")
        whole = signs.replace("dsae", "x").replace("dsa", "").replace("dse", "x").replace("ds", "r")
        require(ended <= 1 and whole in ("x", "", "r"), f"frame {frame_id} went like this: {signs}")
        if not ending.is_cancelled and ending.error is None:
            require(ended == 1, f"frame {frame_id} has not ended: {signs}")
        require("r" not in whole, f"frame {frame_id} still runs: {signs}")
    places = Counter((e.payload["slot"], e.payload["frame_index"]) for e in events
                     if e.event_type == "frame.dispatched" and e.attempt == 1)  # fmt: skip
    twice = [place for place, count in places.items() if count > 1]
    require(not twice, f"two frames share the coordinates {twice[:2]}")


def _check_answers(world: StageWorld, events: list[Envelope]) -> None:
    """What a slot was told is committed, is."""
    ends = {event.frame_id: event.event_id for event in events if event.event_type in _ENDS}
    for event in events:
        if event.event_type == "frame.committed":
            slot, index = _place_of(events, event)
            own = f"o{slot}.{index}.{event.attempt}"
            ref, told = event.payload_ref, event.payload.get("returned", {}).get("results")
            found = told == [own] if ref is None else ref.sha256 == reference(own).sha256
            require(found, f"the output of frame {event.frame_id} is that of another attempt")
    for frame_id, event_id in world.answered.items():
        require(ends.get(frame_id) == event_id, f"frame {frame_id} was said to be ended by {event_id}, not by "
                f"{ends.get(frame_id)}")  # fmt: skip


def _place_of(events: list[Envelope], ended: Envelope) -> tuple[int, int]:
    first = next(event for event in events if event.event_id == ended.frame_id)
    return first.payload["slot"], first.payload["frame_index"]


def _check_totals(world: StageWorld, ending: Ending, events: list[Envelope]) -> None:
    """Every row of the input is in one frame, and counted once."""
    stats, table = ending.table.tally.stats, ending.table
    committed = [event for event in events if event.event_type == "frame.committed"]
    failed = [event for event in events if event.event_type == "frame.failed"]
    rows = sum(event.payload["rows"] for event in committed) + sum(event.payload["row_count"] for event in failed)
    require(stats.total == rows, f"{stats.total} rows are counted, and {rows} were run")
    require(stats.frames == len(committed) + len(failed), f"{stats.frames} frames are counted")
    sizes = [event.payload["returned"]["bytes"] if event.payload_ref is None else event.payload_ref.bytes
             for event in committed]  # fmt: skip
    require(stats.bytes == sum(sizes), f"{stats.bytes} bytes are counted, and {sum(sizes)} were made")
    if ending.is_cancelled or table.is_halted or ending.error is not None:
        return
    if world.schedule.kind == "fanout":
        require(rows == sum(world.sizes), f"{rows} rows of {sum(world.sizes)} were run")
    for event in committed:
        first = next(one for one in events if one.event_id == event.frame_id)
        slot, claim, begin = FrameState.of(first, is_cursor=False).place
        for row in range(event.payload["rows"]):
            key = (slot, claim, begin + row)
            require(world.effects[key] > 0, f"row {key} is committed, and nobody has run it")
    if world.schedule.kind == "loop":
        recorded = {
            event.payload_ref.sha256
            for event in events
            if event.event_type == "frame.dispatched" and event.payload_ref is not None
        }
        seen = Counter(row for sha in recorded for row in world.recorded[sha])
        left = world.left(recorded)
        require(rows == sum(seen.values()), f"{rows} rows were run of {sum(seen.values())} that were recorded")
        require(seen + left == Counter(range(sum(world.sizes))), f"rows were run {seen} times, and {left} are left")


def _check_memory(world: StageWorld, ending: Ending, events: list[Envelope]) -> None:
    """What the last keeper has in memory is what the log says."""
    table = FrameTable(world.plan, "x")
    if world.schedule.kind != "loop":
        table.pin(world.pinned())
    for event in events:
        table.fold(event, event.payload.get("set") or {})
    live = ending.table
    require(table.tally.stats == live.tally.stats, f"the log gives {table.tally.stats}, memory {live.tally.stats}")
    require(table.tally.first_error == live.tally.first_error, "the first error is another one in the log")
    require(list(table.tally.assignments()) == list(live.tally.assignments()), "assignments differ from the log")
    require(list(table.tally.outputs) == list(live.tally.outputs), "outputs differ from the log")
    for frame_id in {event.frame_id for event in events if event.frame_id is not None}:
        mine, logged = live.find(frame_id), table.find(frame_id)
        require(live.ended_by(frame_id) == table.ended_by(frame_id),
                f"frame {frame_id} was ended by another event in memory than in the log")  # fmt: skip
        require(
            (mine is None) == (logged is None), f"frame {frame_id} is open in memory or in the log, and not in both"
        )
        if mine is None or logged is None:
            require(live.ended_by(frame_id) > 0, f"frame {frame_id} is neither open nor ended")
            continue
        same = (mine.status, mine.attempt, mine.place, mine.spent)
        require(same == (logged.status, logged.attempt, logged.place, logged.spent),
                f"frame {frame_id} is {same} in memory and not in the log")  # fmt: skip


async def _check_seal(world: StageWorld, ending: Ending) -> None:
    """The seal is over all there is, and closes the stage: nothing gets in afterwards."""
    require(ending.seal == await measure(world.ledger, world.stream, final=True), "the seal is not that of the stream")
    closed = Draft(
        event_type="stage.closed", tenant_id=TENANT, organization_id="org", project_id="shop", principal="p",
        producer="noetl://tenant/acme", execution_id=EXECUTION, stage_id=STAGE, aggregate_type="stage",
        payload={"seal": msgspec.to_builtins(ending.seal)},
    )  # fmt: skip
    await world.ledger.append([Batch(stream=Stream(TENANT, execution_stream(EXECUTION)), drafts=[closed])])


async def _all(world: StageWorld) -> list[Envelope]:
    return [item.event for item in await world.ledger.read_all(limit=1 << 20)]


def _check_rows(events: list[Envelope]) -> None:
    """The rows of the fold agree with the events: what is shown of frames is what has happened to them."""
    state = fold_all(events)
    counts = Counter(event.event_type for event in events)
    stage = state.surfaces["stages"].rows.get(STAGE)
    if stage is None:
        require(not counts["frame.dispatched"], "there are frames of no stage")
        return
    require(stage.committed == counts["frame.committed"] and stage.failed == counts["frame.failed"],
            "the stage's row counts other frames than its events")  # fmt: skip
