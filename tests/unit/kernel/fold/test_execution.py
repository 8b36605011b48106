from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope
from noetl.kernel.fold import State, apply
from noetl.kernel.fold.rows import CommandRow, ExecutionRow, FrameRow, LoopRow, StageRow
from tests.unit.kernel.drafts import PAYLOAD_REF, SHA256, envelope

AT = "2026-03-02T08:00:00.000000Z"
LATER = "2026-03-02T09:00:00.000000Z"
SEAL = {
    "stream_id": "execution/4101/stage/77", "root": SHA256, "count": 3, "first_event_id": 1, "last_event_id": 3,
    "first_position": 1, "last_position": 3, "final": True,
}  # fmt: skip

Say = Callable[..., None]


@pytest.fixture
def state() -> State:
    return State("execution")


@pytest.fixture
def say(state: State) -> Say:
    """Fold one more event; ids count from 1."""
    count = 0

    def said(event_type: str, **fields: Any) -> None:
        nonlocal count
        count += 1
        apply(state, envelope(event_type, **{"event_id": count, **fields}))

    return said


def execution(state: State) -> ExecutionRow:
    row: ExecutionRow = state.surfaces["execution"].rows["root"]
    return row


def command(state: State, key: int = 7) -> CommandRow:
    row: CommandRow = state.surfaces["commands"].rows[key]
    return row


def stage(state: State, key: int = 77) -> StageRow:
    row: StageRow = state.surfaces["stages"].rows[key]
    return row


def frame(state: State, key: int = 9) -> FrameRow:
    row: FrameRow = state.surfaces["frames"].rows[key]
    return row


def loop(state: State, key: str = "load/1") -> LoopRow:
    row: LoopRow = state.surfaces["loops"].rows[key]
    return row


class TestPlaybook:
    def test_a_playbook_begins_pending_with_all_that_was_recorded(self, state: State, say: Say) -> None:
        document = {"sha256": SHA256, "path": "guide/hello", "origin": "file"}
        payload = {"path": "guide/hello", "workload": {"who": "world"}, "document": document, "root_execution_id": "12"}
        say("playbook.initialized", parent_execution_id=13, payload=payload)
        row = execution(state)
        assert (row.status, row.path, row.workload, row.document) == (
            "PENDING",
            "guide/hello",
            {"who": "world"},
            document,
        )
        assert (row.execution_id, row.parent_execution_id, row.root_execution_id) == (4101, 13, 12)
        assert (row.principal, row.started_at) == ("user:ada", AT)

    def test_an_execution_that_nobody_called_is_its_own_root(self, state: State, say: Say) -> None:
        say("playbook.initialized", payload={"path": "guide/hello"})
        assert execution(state).root_execution_id == 4101

    def test_it_runs_once_its_workflow_has_begun(self, state: State, say: Say) -> None:
        say("playbook.initialized", payload={"path": "guide/hello"})
        say("workflow.initialized", node_name="start")
        row = execution(state)
        assert (row.status, row.workflow_status, row.first_step) == ("RUNNING", "RUNNING", "start")

    @pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
    def test_a_terminal_event_ends_it(self, state: State, say: Say, ending: str) -> None:
        result, error = {"status": "ok"}, {"kind": "unknown"}
        say(f"playbook.{ending}", event_time=LATER, payload={"final_step": "end", "result": result, "error": error})
        row = execution(state)
        assert (row.status, row.ended_at, row.final_step, row.result, row.error) == (
            ending.upper(), LATER, "end", result, error,
        )  # fmt: skip

    def test_the_first_terminal_event_stands_and_others_are_counted(self, state: State, say: Say) -> None:
        say("playbook.cancelled", payload={"final_step": "a"})
        say("playbook.completed", event_time=LATER, payload={"final_step": "b", "result": {"status": "ok"}})
        row = execution(state)
        assert (row.status, row.ended_at, row.final_step, row.result) == ("CANCELLED", AT, "a", None)
        assert row.extra_terminals == 1

    @pytest.mark.parametrize("ending", ["completed", "failed"])
    def test_the_workflow_ends_before_the_playbook(self, state: State, say: Say, ending: str) -> None:
        say(f"workflow.{ending}")
        assert execution(state).workflow_status == ending.upper()

    def test_steps_are_counted(self, state: State, say: Say) -> None:
        for event_type in ("step.enter", "step.enter", "step.exit", "step.skipped", "step.adopted"):
            say(event_type, node_name="load")
        row = execution(state)
        assert (row.steps_entered, row.steps_exited, row.steps_skipped, row.steps_adopted) == (2, 1, 1, 1)

    def test_a_fork_begins_with_what_it_adopts(self, state: State, say: Say) -> None:
        origin = {"execution_id": 5, "event_id": 9, "step": "load"}
        payload = {"path": "p", "forked_from": origin, "ctx": {"a": {"b": 1}}}
        say("playbook.initialized", payload=payload)
        say("step.exit", payload={"set": {"ctx.a.c": 2}})
        row = execution(state)
        assert (row.forked_from, row.ctx) == (origin, {"a": {"b": 1, "c": 2}})
        assert payload["ctx"] == {"a": {"b": 1}}, "the event stays as it was"

    def test_where_a_fork_comes_from_must_be_a_mapping(self, state: State, say: Say) -> None:
        with pytest.raises(InvalidEvent, match=r"payload\.forked_from"):
            say("playbook.initialized", payload={"path": "p", "forked_from": 5})

    def test_accepted_batches_are_counted(self, state: State, say: Say) -> None:
        for verb in ("accepted", "processing", "completed", "accepted", "failed"):
            say(f"batch.{verb}")
        assert execution(state).batches == 2

    def test_seals_are_counted(self, state: State, say: Say) -> None:
        say("stream.sealed", payload={"seal": SEAL})
        assert execution(state).seals == 1

    @pytest.mark.parametrize(
        ("older", "status"),
        [
            ("playbook_completed", "COMPLETED"),
            ("playbook_failed", "FAILED"),
            ("playbook_cancelled", "CANCELLED"),
            ("execution.cancelled", "CANCELLED"),
        ],
    )
    def test_older_spellings_of_the_end_are_read(self, state: State, say: Say, older: str, status: str) -> None:
        say(older)
        assert execution(state).status == status

    @pytest.mark.parametrize("older", ["playbook_initialized", "playbook.started", "playbook_started"])
    def test_older_spellings_of_the_beginning_are_read(self, state: State, say: Say, older: str) -> None:
        say(older, payload={"path": "guide/hello"})
        assert execution(state).path == "guide/hello"
        assert execution(state).unknown == {}


class TestSet:
    def ctx_after(self, say: Say, state: State, *patches: dict[str, Any]) -> Any:
        for patch in patches:
            say("call.done", payload={"set": patch})
        return execution(state).ctx

    def test_only_ctx_outlives_the_step(self, state: State, say: Say) -> None:
        assert self.ctx_after(say, state, {"ctx.a": 1, "step.b": 2, "iter.c": 3, "d": 4, "ctx": 5}) == {"a": 1}

    def test_a_path_reaches_inside(self, state: State, say: Say) -> None:
        assert self.ctx_after(say, state, {"ctx.a.b.c": 1}, {"ctx.a.b.d": 2}) == {"a": {"b": {"c": 1, "d": 2}}}

    def test_what_is_in_the_way_is_replaced(self, state: State, say: Say) -> None:
        assert self.ctx_after(say, state, {"ctx.a": 1}, {"ctx.a.b": 2}) == {"a": {"b": 2}}

    def test_a_later_set_does_not_reach_into_an_earlier_event(self, state: State, say: Say) -> None:
        value = {"b": 1}
        assert self.ctx_after(say, state, {"ctx.a": value}, {"ctx.a.b": 2}) == {"a": {"b": 2}}
        assert value == {"b": 1}

    def test_events_of_sparse_streams_set_nothing(self, state: State, say: Say) -> None:
        say("frame.committed", dense=False, frame_id=9, stage_id=77, payload={"rows": 1, "set": {"ctx.a": 1}})
        assert execution(state).ctx is None

    def test_a_key_that_reaches_too_deep_is_refused(self, state: State, say: Say) -> None:
        with pytest.raises(InvalidEvent, match=r"field 'payload.set'.*deep"):
            say("step.exit", payload={"set": {"ctx." + ".".join("abc" * 20): 1}})

    def test_an_unknown_events_set_is_its_own_business(self, state: State, say: Say) -> None:
        say("budget.reserved", payload={"set": ["not", "ours"]})
        assert execution(state).ctx is None


class TestCommands:
    def test_an_issued_command_is_pending_and_its_own_id(self, state: State, say: Say) -> None:
        payload = {"kind": "http", "pool": "gpu", "loop_id": "load/1", "loop_index": 3, "child_execution_id": "55"}
        say("command.issued", event_id=7, node_name="load", attempt=2, stage_id=77, frame_id=9, payload=payload)
        row = command(state)
        assert (row.status, row.step, row.kind, row.pool, row.attempt) == ("PENDING", "load", "http", "gpu", 2)
        assert (row.stage_id, row.frame_id, row.loop_id, row.loop_index) == (77, 9, "load/1", 3)
        assert (row.child_execution_id, row.issued_event_id, row.issued_at) == (55, 7, AT)

    def test_claim_and_start(self, state: State, say: Say) -> None:
        say("command.claimed", command_id=7, meta={"worker_id": "w1"})
        assert (command(state).status, command(state).claims, command(state).worker_id) == ("CLAIMED", 1, "w1")
        say("command.started", command_id=7, event_time=LATER)
        assert (command(state).status, command(state).started_at) == ("RUNNING", LATER)

    def test_a_lost_worker_puts_the_command_back(self, state: State, say: Say) -> None:
        say("command.claimed", command_id=7, meta={"worker_id": "w1"})
        say("command.abandoned", command_id=7)
        row = command(state)
        assert (row.status, row.worker_id, row.abandons) == ("PENDING", None, 1)

    def test_a_second_start_keeps_the_first_time(self, state: State, say: Say) -> None:
        say("command.started", command_id=7)
        say("command.started", command_id=7, event_time=LATER)
        assert command(state).started_at == AT

    def test_a_suspended_command_waits_for_its_child(self, state: State, say: Say) -> None:
        say("command.suspended", command_id=7, payload={"child_execution_id": 55})
        assert (command(state).status, command(state).child_execution_id) == ("SUSPENDED", 55)
        say("command.resumed", command_id=7)
        assert (command(state).status, command(state).suspensions) == ("PENDING", 1)

    @pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
    def test_a_command_ends(self, state: State, say: Say, ending: str) -> None:
        say(f"command.{ending}", event_id=40, command_id=7, event_time=LATER)
        row = command(state)
        assert (row.status, row.terminal_event_id, row.ended_at) == (ending.upper(), 40, LATER)

    def test_a_call_leaves_its_result_or_its_error(self, state: State, say: Say) -> None:
        say("call.done", command_id=7, payload={"result": {"status": "ok"}})
        assert (command(state).result, command(state).error) == ({"status": "ok"}, None)
        say("call.error", command_id=7, payload={"result": {"status": "error"}, "error": {"kind": "timeout"}})
        assert (command(state).error, command(state).calls) == ({"kind": "timeout"}, 2)

    def test_a_failed_command_keeps_its_error(self, state: State, say: Say) -> None:
        say("command.failed", command_id=7, payload={"error": {"kind": "timeout"}})
        assert command(state).error == {"kind": "timeout"}

    def test_the_result_of_a_tool_that_was_cancelled_too_late_is_kept(self, state: State, say: Say) -> None:
        say("command.cancelled", command_id=7, payload={"result": {"status": "ok"}})
        assert command(state).result == {"status": "ok"}

    def test_a_call_without_a_command_has_no_row(self, state: State, say: Say) -> None:
        say("call.error", node_name="drain", payload={"error": {"kind": "unknown"}})
        assert state.surfaces["commands"].rows == {}

    def test_heartbeats_are_counted_and_change_nothing_else(self, state: State, say: Say) -> None:
        say("command.heartbeat", dense=False, command_id=7)
        assert (command(state).heartbeats, command(state).status) == (1, "PENDING")

    @pytest.mark.parametrize("event_type", ["command.route.selected", "command.route.failed"])
    def test_routes_are_known_and_leave_no_row(self, state: State, say: Say, event_type: str) -> None:
        say(event_type, command_id=7)
        assert state.surfaces["commands"].rows == {}
        assert execution(state).unknown == {}


class TestLoops:
    def test_an_epoch_from_opening_to_done(self, state: State, say: Say) -> None:
        about = {"aggregate_type": "loop", "aggregate_id": "load/1", "node_name": "load"}
        opened = {"epoch": 1, "mode": "parallel", "iterator": "item", "total": 3}
        say("loop.opened", payload=opened, **about)
        assert (loop(state).status, loop(state).mode, loop(state).total) == ("RUNNING", "parallel", 3)
        say("loop.item", **about)
        say("loop.item", **about)
        say("loop.done", status="FAILED", payload={"stats": {"total": 3, "success": 2, "failed": 1}}, **about)
        row = loop(state)
        assert (row.status, row.items, row.total, row.success, row.failed) == ("FAILED", 2, 3, 2, 1)
        assert (row.opened_event_id, row.done_event_id) == (1, 4)

    def test_a_loop_that_is_done_without_a_status_is_completed(self, state: State, say: Say) -> None:
        say("loop.done", aggregate_type="loop", aggregate_id="load/1", payload={"stats": {}})
        assert loop(state).status == "COMPLETED"

    def test_a_stalled_loop_says_so(self, state: State, say: Say) -> None:
        say("loop.stalled", aggregate_type="loop", aggregate_id="load/1")
        assert loop(state).stalled

    def test_a_loop_event_without_an_aggregate_is_about_its_step(self, state: State, say: Say) -> None:
        say("loop.item", node_name="load")
        assert loop(state, "load").items == 1


class TestStages:
    def test_a_stage_opens_and_closes(self, state: State, say: Say) -> None:
        payload = {"kind": "reduce", "parent_stage_id": "70", "loop_id": "load/1", "frame_policy": {"max_rows": 5}}
        say("stage.opened", event_id=77, node_name="load", command_id=7, parent_event_id=3, payload=payload)
        row = stage(state)
        assert (row.status, row.kind, row.step, row.parent_stage_id, row.command_id) == (
            "OPEN",
            "reduce",
            "load",
            70,
            7,
        )
        assert (row.frame_policy, row.loop_id, row.parent_event_id) == ({"max_rows": 5}, "load/1", 3)
        say("stage.started", dense=False, stage_id=77)
        say("stage.closed", event_id=99, stage_id=77, event_time=LATER, payload={"seal": SEAL})
        assert (row.status, row.sessions, row.closed_event_id, row.ended_at) == ("COMPLETED", 1, 99, LATER)
        assert (row.seal_root, row.seal_count) == (SHA256, 3)

    def test_a_stage_may_fail(self, state: State, say: Say) -> None:
        say("stage.closed", stage_id=77, status="FAILED", payload={"error": {"kind": "timeout"}})
        assert (stage(state).status, stage(state).error) == ("FAILED", {"kind": "timeout"})

    @pytest.mark.parametrize("kind", ["loop", "fanout", "reduce", "transfer"])
    def test_the_kinds_of_stages(self, state: State, say: Say, kind: str) -> None:
        say("stage.opened", stage_id=77, node_name="load", payload={"kind": kind})
        assert stage(state).kind == kind


class TestFrames:
    def dispatch(self, say: Say, **fields: Any) -> None:
        payload = {"slot": 1, "frame_index": 4, "cursor": {"offset": 5}, "lease_until": AT, "parent_frame_id": 3}
        facts = {"event_id": 9, "dense": False, "stage_id": 77, "command_id": 7, "meta": {"worker_id": "w1"}}
        say("frame.dispatched", **{**facts, "payload": payload, **fields})

    def test_a_dispatched_frame_is_claimed_and_its_own_id(self, state: State, say: Say) -> None:
        self.dispatch(say)
        row = frame(state)
        assert (row.status, row.stage_id, row.command_id, row.parent_frame_id) == ("CLAIMED", 77, 7, 3)
        assert (row.slot, row.frame_index, row.cursor, row.owner_worker) == (1, 4, {"offset": 5}, "w1")
        assert (row.lease_until, row.attempts, row.claimed_event_id, row.created_at) == (AT, 1, 9, AT)
        assert stage(state).dispatched == 1

    def test_a_frame_commits_with_its_rows(self, state: State, say: Say) -> None:
        self.dispatch(say)
        say("frame.started", event_id=10, dense=False, stage_id=77, frame_id=9)
        assert frame(state).status == "RUNNING"
        payload = {"rows": 50, "outcomes": {"ok": 48, "error": 2}}
        say(
            "frame.committed",
            event_id=11,
            dense=False,
            stage_id=77,
            frame_id=9,
            payload=payload,
            payload_ref=PAYLOAD_REF,
        )
        row = frame(state)
        assert (row.status, row.row_count, row.outcomes, row.output_ref) == (
            "COMPLETED",
            50,
            payload["outcomes"],
            PAYLOAD_REF,
        )
        assert (row.lease_until, row.terminal_event_id, row.completed_at) == (None, 11, AT)
        assert (stage(state).committed, stage(state).rows) == (1, 50)

    def test_an_output_named_in_the_payload_goes_before_the_envelopes(self, state: State, say: Say) -> None:
        named = {"uri": "s3://x", "sha256": "cd" * 32, "media_type": "text/csv", "bytes": 1}
        say(
            "frame.committed",
            stage_id=77,
            frame_id=9,
            payload={"rows": 1, "output_ref": named},
            payload_ref=PAYLOAD_REF,
        )
        ref = frame(state).output_ref
        assert ref is not None
        assert ref.uri == "s3://x"

    def test_a_failed_frame_keeps_its_error(self, state: State, say: Say) -> None:
        say("frame.failed", dense=False, stage_id=77, frame_id=9, payload={"error": {"kind": "transform"}})
        assert (frame(state).status, frame(state).error, stage(state).failed) == ("FAILED", {"kind": "transform"}, 1)

    def test_an_abandoned_frame_is_dispatched_again(self, state: State, say: Say) -> None:
        self.dispatch(say)
        say("frame.abandoned", event_id=10, dense=False, stage_id=77, frame_id=9)
        row = frame(state)
        assert (row.status, row.owner_worker, row.lease_until, row.abandons) == ("ABANDONED", None, None, 1)
        self.dispatch(say, event_id=11, frame_id=9, command_id=None, payload={"slot": 1, "frame_index": 4})
        assert (row.status, row.attempts, row.claimed_event_id, row.created_at) == ("CLAIMED", 2, 11, AT)
        assert (row.cursor, row.command_id, row.parent_frame_id) == ({"offset": 5}, 7, 3)
        assert (stage(state).dispatched, stage(state).abandoned) == (2, 1)

    def test_a_heartbeat_extends_the_lease(self, state: State, say: Say) -> None:
        self.dispatch(say)
        say("frame.heartbeat", event_id=10, dense=False, frame_id=9, payload={"lease_until": LATER})
        assert (frame(state).lease_until, frame(state).heartbeats) == (LATER, 1)

    def test_a_heartbeat_that_is_read_late_extends_nothing(self, state: State, say: Say) -> None:
        self.dispatch(say)
        say("frame.abandoned", event_id=12, dense=False, stage_id=77, frame_id=9)
        say("frame.heartbeat", event_id=11, dense=False, frame_id=9, payload={"lease_until": LATER})
        assert (frame(state).lease_until, frame(state).heartbeats) == (None, 1)


MALFORMED: list[tuple[str, dict[str, Any], str]] = [
    ("playbook.initialized", {}, "payload.path"),
    ("playbook.initialized", {"payload": {"path": 7}}, "payload.path"),
    ("playbook.initialized", {"payload": {"path": "a", "workload": []}}, "payload.workload"),
    ("playbook.initialized", {"payload": {"path": "a", "document": "text"}}, "payload.document"),
    ("playbook.initialized", {"payload": {"path": "a", "home": 1}}, "payload.home"),
    ("playbook.initialized", {"payload": {"path": "a", "authority": 1}}, "payload.authority"),
    ("playbook.initialized", {"payload": {"path": "a", "root_execution_id": "x"}}, "payload.root_execution_id"),
    ("playbook.completed", {"payload": {"final_step": 3}}, "payload.final_step"),
    ("command.issued", {}, "node_name"),
    ("command.issued", {"node_name": "a", "payload": {"kind": []}}, "payload.kind"),
    ("command.issued", {"node_name": "a", "payload": {"pool": 1}}, "payload.pool"),
    ("command.issued", {"node_name": "a", "payload": {"loop_index": 1.5}}, "payload.loop_index"),
    ("command.issued", {"node_name": "a", "payload": {"loop_index": True}}, "payload.loop_index"),
    ("command.issued", {"node_name": "a", "payload": {"child_execution_id": "9" * 5000}}, "payload.child_execution_id"),
    *[(f"command.{name}", {}, "command_id") for name in (
        "claimed", "started", "heartbeat", "completed", "failed", "cancelled", "abandoned", "suspended", "resumed",
    )],
    ("command.suspended", {"command_id": 7, "payload": {"child_execution_id": []}}, "payload.child_execution_id"),
    ("command.cancelled", {"command_id": 7, "payload": {"result": "text"}}, "payload.result"),
    ("call.done", {"command_id": 7, "payload": {"result": "text"}}, "payload.result"),
    ("call.error", {"command_id": 7, "payload": {"error": "text"}}, "payload.error"),
    ("call.done", {"payload": {"set": ["ctx.a"]}}, "payload.set"),
    ("loop.opened", {"node_name": "a", "payload": {"epoch": "one"}}, "payload.epoch"),
    ("loop.opened", {"node_name": "a", "payload": {"mode": 1}}, "payload.mode"),
    ("loop.item", {}, "aggregate_id"),
    ("loop.stalled", {}, "aggregate_id"),
    ("loop.done", {"node_name": "a"}, "payload.stats"),
    ("loop.done", {"node_name": "a", "payload": {"stats": {"total": "3"}}}, "payload.stats"),
    ("stage.opened", {"node_name": "a"}, "payload.kind"),
    ("stage.opened", {"node_name": "a", "payload": {"kind": "spiral"}}, "payload.kind"),
    ("stage.opened", {"payload": {"kind": "loop"}}, "node_name"),
    ("stage.opened", {"node_name": "a", "payload": {"kind": "loop", "frame_policy": 5}}, "payload.frame_policy"),
    ("stage.started", {}, "stage_id"),
    ("stage.closed", {}, "stage_id"),
    ("stage.closed", {"stage_id": 77, "payload": {"seal": {"count": 1}}}, "payload.seal"),
    ("stage.closed", {"stage_id": 77, "payload": {"error": "text"}}, "payload.error"),
    ("frame.dispatched", {}, "stage_id"),
    ("frame.dispatched", {"stage_id": 77, "payload": {"slot": "left"}}, "payload.slot"),
    ("frame.dispatched", {"stage_id": 77, "payload": {"lease_until": 5}}, "payload.lease_until"),
    ("frame.started", {}, "frame_id"),
    ("frame.heartbeat", {}, "frame_id"),
    ("frame.heartbeat", {"frame_id": 9, "payload": {"lease_until": 5}}, "payload.lease_until"),
    ("frame.abandoned", {}, "frame_id"),
    ("frame.abandoned", {"frame_id": 9}, "stage_id"),
    ("frame.committed", {"frame_id": 9, "stage_id": 77}, "payload.rows"),
    ("frame.committed", {"frame_id": 9, "payload": {"rows": 1}}, "stage_id"),
    ("frame.committed", {"frame_id": 9, "stage_id": 77, "payload": {"rows": 1, "outcomes": []}}, "payload.outcomes"),
    ("frame.committed", {"frame_id": 9, "payload": {"rows": 1, "output_ref": {}}}, "payload.output_ref"),
    ("frame.failed", {"frame_id": 9, "stage_id": 77, "payload": {"error": []}}, "payload.error"),
    ("stream.sealed", {}, "payload.seal"),
    ("business_object.created", {"payload": {"business_object": {"type": "order"}}}, "business_object"),
    ("step.enter", {"meta": {"business_object": "order/7"}}, "business_object"),
    (
        "business_object.updated",
        {"aggregate_type": "business_object", "payload": {"attributes": [1]}},
        "business_object.attributes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("event_type", "fields", "field"), MALFORMED)
def test_a_malformed_known_event_names_event_and_field(event_type: str, fields: dict[str, Any], field: str) -> None:
    event: Envelope = envelope(event_type, event_id=612, **fields)
    with pytest.raises(InvalidEvent, match=f"event 612, field '{field}'") as refused:
        apply(State("execution"), event)
    assert (refused.value.event_id, refused.value.field) == (612, field)
