"""Random logs of one execution, in the streams where each kind of event belongs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from noetl.kernel.event import Envelope
from tests.unit.kernel.drafts import EXECUTION, PAYLOAD_REF, SHA256, STREAM, TELEMETRY, envelope

STAGES = [70, 71]
FRAMES = {90: 70, 91: 70, 92: 71}
COMMANDS = [7, 8]

ids = st.sampled_from(COMMANDS)
texts = st.sampled_from(["a", "b", "PENDING", "COMPLETED", "Zoë"])
values = (
    st.none() | st.integers(-5, 5) | st.floats(-2, 2) | texts | st.dictionaries(texts, st.integers(0, 3), max_size=2)
)
patches = st.dictionaries(st.sampled_from(["ctx.a", "ctx.a.b", "ctx.c", "step.d"]), values, max_size=2)


def _seal(stream_id: str) -> dict[str, Any]:
    numbers = dict.fromkeys(("count", "first_event_id", "last_event_id", "first_position", "last_position"), 3)
    return {"stream_id": stream_id, "root": SHA256, **numbers}


@st.composite
def _decisions(draw: st.DrawFn) -> dict[str, Any]:
    """An event of the execution's own stream."""
    simple = st.sampled_from(
        ["step.enter", "step.exit", "step.skipped", "step.adopted", "workflow.completed", "batch.accepted", "odd.one"]
    )
    kinds: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "playbook": st.fixed_dictionaries({
            "event_type": st.sampled_from(["playbook.initialized", "playbook.started"]),
            "payload": st.fixed_dictionaries({"path": texts, "workload": st.dictionaries(texts, values, max_size=2)}),
        }),
        "ended": st.fixed_dictionaries({
            "event_type": st.sampled_from(["playbook.completed", "execution.cancelled", "playbook_failed"]),
            "payload": st.fixed_dictionaries({"final_step": texts, "result": values}),
        }),
        "workflow": st.just({"event_type": "workflow.initialized", "node_name": "a"}),
        "simple": st.fixed_dictionaries({"event_type": simple}),
        "issued": st.fixed_dictionaries({
            "event_type": st.just("command.issued"), "command_id": ids, "node_name": texts,
        }),
        "command": st.fixed_dictionaries({
            "event_type": st.sampled_from([
                "command.claimed", "command.started", "command.completed", "command.abandoned", "command.cancelled",
                "command.resumed",
            ]),
            "command_id": ids,
            "meta": st.just({"worker_id": "w1"}),
        }),
        "call": st.fixed_dictionaries({
            "event_type": st.sampled_from(["call.done", "call.error"]),
            "command_id": st.none() | ids,
            "payload": st.fixed_dictionaries({"set": patches, "result": st.just({"status": "ok"})}),
        }),
        "loop": st.fixed_dictionaries({
            "event_type": st.sampled_from(["loop.opened", "loop.item", "loop.done", "loop.stalled"]),
            "aggregate_type": st.just("loop"),
            "aggregate_id": st.sampled_from(["load/1", "load/2"]),
            "payload": st.just({"stats": {"total": 3}}),
            "status": st.none() | texts,
        }),
        "stage": st.fixed_dictionaries({
            "event_type": st.sampled_from(["stage.opened", "stage.closed"]),
            "stage_id": st.sampled_from(STAGES),
            "node_name": texts,
            "status": st.none() | texts,
            "payload": st.just({"kind": "loop"}),
        }),
        "seal": st.just({"event_type": "stream.sealed", "payload": {"seal": _seal(TELEMETRY.stream_id)}}),
    }  # fmt: skip
    return {"stream_id": STREAM.stream_id, **draw(kinds[draw(st.sampled_from(sorted(kinds)))])}


@st.composite
def _frames(draw: st.DrawFn) -> dict[str, Any]:
    """An event of a stage's stream."""
    frame = draw(st.sampled_from(sorted(FRAMES)))
    verb = draw(st.sampled_from(["dispatched", "started", "abandoned", "committed", "failed"]))
    return {
        "event_type": f"frame.{verb}",
        "stream_id": f"execution/{EXECUTION}/stage/{FRAMES[frame]}",
        "stage_id": FRAMES[frame],
        "frame_id": frame,
        "payload": {"rows": draw(st.integers(0, 9)), "lease_until": draw(texts), "slot": 1, "set": {"ctx.never": 1}},
        "dense": False,
    }


@st.composite
def _signals(draw: st.DrawFn) -> dict[str, Any]:
    """An event of the telemetry stream."""
    frame = draw(st.sampled_from(sorted(FRAMES)))
    about: dict[str, dict[str, Any]] = {
        "command.heartbeat": {"command_id": draw(ids)},
        "frame.heartbeat": {"frame_id": frame, "stage_id": FRAMES[frame], "payload": {"lease_until": draw(texts)}},
        "stage.started": {"stage_id": FRAMES[frame]},
        "odd.signal": {},
    }
    event_type = draw(st.sampled_from(sorted(about)))
    return {"event_type": event_type, "stream_id": TELEMETRY.stream_id, "dense": False, **about[event_type]}


@st.composite
def _with_object(draw: st.DrawFn, facts: dict[str, Any]) -> dict[str, Any]:
    """The same event, perhaps naming a business object and referring to a payload."""
    if draw(st.booleans()):
        facts = {**facts, "payload_ref": PAYLOAD_REF}
    if draw(st.booleans()):
        named: dict[str, Any] = {"type": "order", "id": draw(st.sampled_from(["1", "2"]))}
        named |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "status": texts,
                    "version": st.integers(0, 9),
                    "deleted": st.booleans(),
                    "attributes": st.dictionaries(texts, values, max_size=2),
                },
            )
        )
        facts = {**facts, "meta": {**facts.get("meta", {}), "business_object": named}}
    return facts


_events = (_decisions() | _frames() | _signals()).flatmap(_with_object)


@st.composite
def logs(draw: st.DrawFn) -> list[Envelope]:
    """A log in order of commit."""
    facts = draw(st.lists(_events, min_size=6, max_size=40))
    return [
        envelope(
            **{**fact, "event_id": 1000 + place, "event_time": f"2026-03-02T08:00:{place:02d}.000000Z"}
        )
        for place, fact in enumerate(facts)
    ]  # fmt: skip


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[Envelope], list[Envelope]]:
    """A log, and the same log with its streams mixed in another way, each in its own order."""
    log = draw(logs())
    order = draw(st.permutations([event.stream_id for event in log]))
    waiting = {name: iter([event for event in log if event.stream_id == name]) for name in set(order)}
    return log, [next(waiting[name]) for name in order]
