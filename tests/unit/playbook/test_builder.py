from __future__ import annotations

import pytest

from noetl.errors import InvalidDocument, InvalidInput
from noetl.playbook import Playbook, parse
from tests.unit.playbook.documents import guide


def test_a_built_playbook_is_the_one_written_by_hand() -> None:
    built = (
        Playbook.builder("branching", "guide/branching")
        .workload({"amount": 120}, limit=100)
        .step("start")
        .tool(
            "python",
            input={"amount": "{{ amount }}", "limit": "{{ limit }}"},
            code='if amount < 0:\n    raise ValueError("negative amount")\nresult = {"over": amount > limit}\n',
        )
        .next("refuse", when="{{ event.name == 'call.error' }}", assign={"ctx.why": "{{ output.error.message }}"})
        .next("review", when="{{ output.data.over }}")
        .next("approve")
        .step("refuse")
        .tool("noop", result={"decision": "refused", "why": "{{ ctx.why }}"})
        .step("review")
        .tool("noop", result={"decision": "review"})
        .step("approve")
        .tool("noop", result={"decision": "approved"})
        .build()
    )
    assert built == guide("branching")


def test_every_part_of_a_document_can_be_built() -> None:
    built = (
        Playbook.builder("all")
        .metadata(tags=["a"], description="everything")
        .executor(profile="local", requires={"tools": ["python"]}, final_step="done", no_next_is_error=True)
        .keychain("crm", "static", map={"token": "x"})
        .workbook("greet", "python", desc="hello", code="result = 1")
        .step("start", desc="first")
        .input(a=1)
        .timeout("5m")
        .admit("{{ ready }}", allow=True)
        .admit(allow=False)
        .loop("{{ items }}", "item", mode="parallel", max_in_flight=4)
        .tool("python", name="one", code="result = item", rules=[{"else": {"then": {"do": "continue"}}}])
        .tool("workbook", name="greet", timeout=3, side_effecting=False)
        .set({"ctx.n": 1})
        .output(scope="permanent")
        .route("inclusive", on_no_match="quiet")
        .next("drain", "score")
        .step("drain")
        .cursor("pg", "SELECT 1", options={"max_iterations": 5}, max_in_flight=2)
        .tool("noop")
        .step("score")
        .loop("{{ start.ref }}", "row", mode="fanout", partitions=4)
        .tool("noop")
        .next("sum")
        .step("sum")
        .reduce("score", ["region"])
        .tool("noop")
        .step("done")
        .tool("noop")
    )
    playbook = built.build()
    assert [step.pipeline for step in playbook.steps.values()] == [True, False, False, False, False]
    assert [task.name for task in playbook.steps["start"].tasks] == ["one", "greet"]
    assert parse(built.to_yaml()).documents == parse(playbook.to_yaml()).documents == (playbook,)
    assert playbook.to_dict()["metadata"] == {"name": "all", "description": "everything", "tags": ["a"]}


def test_what_is_built_wrong_is_explained() -> None:
    with pytest.raises(InvalidDocument, match="arc target 'nd' is not known"):
        Playbook.builder().step("start").tool("noop").next("nd").step("end").tool("noop").build()
    with pytest.raises(InvalidInput, match=r"\.tool\(\) belongs to a step"):
        Playbook.builder().tool("noop")


def test_a_builder_can_go_on_after_build() -> None:
    builder = Playbook.builder().step("start").tool("noop")
    first = builder.build()
    second = builder.next("more").step("more").tool("noop").build()
    assert (list(first.steps), list(second.steps)) == (["start"], ["start", "more"])
