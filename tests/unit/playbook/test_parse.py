from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import InvalidDocument
from noetl.playbook import Playbook, Subscription, load, parse
from noetl.playbook.document import AdmitRule, Arc, Frame, Rule
from tests.unit.playbook.documents import GUIDE, codes, guide, workflow


@pytest.mark.parametrize("file", GUIDE, ids=lambda file: file.stem)
def test_the_examples_of_the_reference_have_no_problem(file: Path) -> None:
    parsed = parse(file.read_text(encoding="utf-8"), file.name)
    assert [str(problem) for problem in parsed.problems] == []
    assert parsed.documents


class TestLoad:
    def test_it_shows_the_first_problems_and_their_number(self) -> None:
        with pytest.raises(InvalidDocument) as caught:
            load("kind: Playbook\n", "t.yaml")
        assert str(caught.value).startswith("t.yaml:1:1: NTL-103 error: apiVersion")
        assert len(caught.value.problems) == 3
        with pytest.raises(InvalidDocument, match="and 2 more, 5 in all"):
            load("kind: Playbok\nworkload: 3\n", "t.yaml")

    def test_it_wants_exactly_one_playbook(self) -> None:
        text = (Path(__file__).parent / "guide" / "squares.yaml").read_text(encoding="utf-8")
        with pytest.raises(InvalidDocument, match="found Playbook 'guide/square', Playbook 'guide/squares'"):
            load(text, "t.yaml")

    def test_warnings_do_not_stop_it(self) -> None:
        assert load(workflow("- step: start")).entry == "start"


class TestPlaybook:
    def test_steps_keep_their_order_and_arcs_their_conditions(self) -> None:
        playbook = guide("branching")
        assert list(playbook.steps) == ["start", "refuse", "review", "approve"]
        router = playbook.steps["start"].router
        assert router is not None
        assert (router.mode, router.on_no_match) == ("exclusive", "complete")
        assert router.arcs[1:] == (Arc(step="review", when="{{ output.data.over }}"), Arc(step="approve"))
        assert router.arcs[0].set == {"ctx.why": "{{ output.error.message }}"}
        assert playbook.steps["refuse"].router is None

    def test_the_entry_is_named_or_start_or_the_first(self) -> None:
        steps = (
            "- {step: a, tool: {kind: noop}, next: {arcs: [{step: start}]}}",
            "- {step: start, tool: {kind: noop}}",
        )
        assert load(workflow(*steps)).entry == "start"
        assert load(workflow(*steps, head="executor: {spec: {entry_step: a}}\n")).entry == "a"
        assert load(workflow("- {step: b, tool: {kind: noop}}")).entry == "b"

    def test_a_single_task_is_a_pipeline_when_it_has_rules_or_set(self) -> None:
        def step(text: str) -> tuple[bool, str]:
            found = load(workflow(f"- {{step: s, tool: {text}}}")).steps["s"]
            return found.pipeline, found.tasks[0].name

        assert step("{kind: noop, name: x}") == (False, "s_task")
        assert step("{kind: noop, set: {a: 1}}") == (True, "s_task")
        assert step("{kind: noop, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}") == (True, "s_task")
        assert step("[{kind: noop}]") == (True, "task_0")
        assert step("[{kind: noop, name: x}]") == (True, "x")

    def test_rules_are_read_with_their_defaults(self) -> None:
        rules = guide("unsteady").steps["start"].tasks[0].rules
        assert rules[0] == Rule(
            when="{{ output.error.retryable }}", do="retry", attempts=4, backoff="linear", delay=0.1
        )
        assert (rules[2].when, rules[2].set) == (None, {"ctx.tries": "{{ output.data.tries }}"})

    def test_a_jump_to_previous_names_the_task(self) -> None:
        text = workflow(
            "- step: s", "  tool:", "    - {name: a, kind: noop}",
            "    - {name: b, kind: noop, spec: {policy: {rules: [{when: x, then: {do: jump, to: prev}}]}}}",
        )  # fmt: skip
        assert load(text).steps["s"].tasks[1].rules[0].to == "a"

    def test_cursor_loops_have_frames_and_tolerate_failures(self) -> None:
        loop = guide("work_queue").steps["drain"].loop
        assert loop is not None
        assert (loop.mode, loop.failure, loop.max_in_flight, loop.items) == ("cursor", "best_effort", 2, None)
        assert loop.frame == Frame(max_rows=5, lease_seconds=60.0, heartbeat_seconds=15.0)
        assert loop.cursor is not None
        assert loop.cursor.auth == "{{ pg }}"

    def test_a_fan_out_takes_large_frames(self) -> None:
        playbook = guide("totals")
        loop = playbook.steps["score"].loop
        assert loop is not None
        assert (loop.frame.max_rows, loop.frame.max_bytes, loop.partitions, loop.failure) == (
            50_000, 64 * 2**20, 8, "fail_at_end",
        )  # fmt: skip
        assert [name for name, step in playbook.steps.items() if step.is_data_stage] == ["load", "score", "report"]
        assert [step.stage_kind for step in playbook.steps.values()] == [None, "fanout", "reduce"]
        assert loop.max_in_flight == 8
        assert load(playbook.to_yaml()) == playbook
        assert playbook.steps["load"].tasks[0].output.fields["resource"] == "datasets/customer_totals"

    def test_admission_is_a_list_of_decisions(self) -> None:
        text = workflow(
            "- step: s", "  tool: {kind: noop}",
            "  spec:", "    timeout: 5m", "    policy:", "      admit:", "        rules:",
            '          - {when: "{{ a }}", then: {allow: false}}', "          - {else: {then: {allow: true}}}",
        )  # fmt: skip
        step = load(text).steps["s"]
        assert step.timeout == 300.0
        assert step.admit == (AdmitRule(when="{{ a }}", allow=False), AdmitRule(allow=True))

    def test_run_time_errors_can_point_into_the_file(self) -> None:
        playbook = guide("unsteady")
        task = playbook.steps["start"].tasks[1]
        assert playbook.position("workflow", 0, "tool", 1, "code") == playbook.position(task.at, "code") == (24, 15)
        assert playbook.line_in(1, task.at, "code") == 25

    def test_further_kinds_may_be_known(self) -> None:
        text = workflow("- {step: s, tool: {kind: acme, anything: 1}}")
        assert codes(text) == ["NTL-402"]
        assert parse(text, kinds=["acme"]).documents


def test_a_subscription_has_a_typed_head() -> None:
    file = next(file for file in GUIDE if file.stem == "orders")
    (subscription,) = parse(file.read_text(encoding="utf-8")).documents
    assert isinstance(subscription, Subscription)
    assert (subscription.source, subscription.mode, subscription.dispatch.playbook) == ("nats", "pull", "guide/hello")
    assert subscription.spec["spool"]["mode"] == "buffer_and_ack"


def test_an_error_in_one_document_leaves_the_others_alone() -> None:
    good = workflow("- {step: s, tool: {kind: noop}}")
    parsed = parse(f"{good}---\n{good.replace('noop', 'nop')}---\n{good}")
    assert [type(document) for document in parsed.documents] == [Playbook, Playbook]
    assert [problem.code for problem in parsed.problems] == ["NTL-402"]
