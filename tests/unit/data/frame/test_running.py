"""A frame is run row by row or whole, within its bounds, and nothing that fails takes the rest with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.data.frame import running
from noetl.data.frame.given import Given, Group
from noetl.data.frame.output import claimed_table, without_lineage
from noetl.data.frame.protocol import Frame, StagePlan
from noetl.data.frame.running import Ran, Said, run_frame, whole_part
from noetl.data.frame.told import results_of
from noetl.payloads.tables import TableValue
from tests.stagework import plan_of, reference


class Script:
    """A body that does what the test says."""

    def __init__(self, row: Callable[[int], Said] | None = None, whole: Said | None = None) -> None:
        self.timings = {"work": 0.5}
        self.at_once = self.most_at_once = 0
        self.begun: list[int] = []
        self._row = row or (lambda index: Said(result={"n": index}))
        self._whole = whole

    async def run_row(self, index: int) -> Said:
        self.begun.append(index)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return self._row(index)

    async def run_whole(self) -> Said:
        assert self._whole is not None
        return self._whole

    def masked(self, value: Any) -> Any:
        return "***" if value == "secret" else value


def frame(rows: int, **more: Any) -> Frame:
    return Frame(frame_id=9, token="t", slot=0, index=0, row_count=rows, rows=reference("rows"), **more)


def claim(rows: int) -> Given:
    return Given(claimed_table([{"id": number} for number in range(rows)]), is_claim=True)


async def run(plan: StagePlan, body: Script, rows: int, **more: Any) -> Ran:
    return await run_frame(plan, frame(rows, **more), claim(rows), body)


def returned(ran: Ran) -> list[Any]:
    """What the rows have returned, as their event says it."""
    assert (ran.output, ran.outcome.output) == (None, None)
    assert ran.outcome.returned is not None
    return results_of(ran.outcome.returned)


def failing(*places: int) -> Callable[[int], Said]:
    error = {"kind": "transform", "code": "PY_ValueError", "message": "no", "retryable": False}
    return lambda index: Said(error=error, traceback="here") if index in places else Said(result={"n": index})


async def test_rows_are_counted_by_what_came_of_them() -> None:
    ran = await run(plan_of("loop"), Script(failing(1, 3)), 5, claim_row=10)
    assert (ran.outcome.rows, ran.outcome.outcomes, ran.outcome.rest) == (5, {"ok": 3, "error": 2}, None)
    assert returned(ran) == [{"n": 0}, {"n": 2}, {"n": 4}]
    assert ran.outcome.returned is not None
    assert ran.outcome.returned.at == [0, 2, 4]
    assert [(said["row"], said["row_index"], said["data"]) for said in ran.outcome.errors] == [
        (1, 11, {"id": 1}), (3, 13, {"id": 3})
    ]  # fmt: skip
    assert ran.outcome.errors[0]["traceback"] == "here"
    assert ran.outcome.timings == {"work": 0.5}


@pytest.mark.parametrize("kind", ["fanout", "loop"])
async def test_what_is_much_or_is_listed_becomes_a_table(kind: str) -> None:
    size = 1 if kind == "fanout" else 4000
    body = Script(lambda index: Said(result={"n": index, "text": str(index) * size}))
    ran = await run(plan_of(kind), body, 3, claim_row=10)
    assert ran.outcome.returned is None
    assert ran.output.column("n").to_pylist() == [0, 1, 2]
    assert ran.output.column("_row_index").to_pylist() == [10, 11, 12]


async def test_only_the_first_failures_are_told_and_all_are_counted() -> None:
    ran = await run(plan_of("loop"), Script(failing(*range(30))), 30)
    assert (len(ran.outcome.errors), ran.outcome.outcomes, ran.output) == (10, {"error": 30}, None)


@pytest.mark.parametrize(("wide", "rows"), [(1, 6), (4, 6), (8, 3)])
async def test_so_many_rows_are_under_way_at_once(wide: int, rows: int) -> None:
    body = Script()
    ran = await run(plan_of("loop", row_concurrency=wide), body, rows)
    assert body.most_at_once == min(wide, rows)
    assert returned(ran) == [{"n": place} for place in range(rows)]


async def test_past_its_bytes_the_rest_is_handed_back() -> None:
    body = Script(lambda index: Said(result={"text": "x" * 100}))
    ran = await run(plan_of("loop", max_bytes=250), body, 10)
    assert 1 < ran.outcome.rows < 10
    assert ran.outcome.rest is not None
    assert ran.outcome.rest.row_count == 10 - ran.outcome.rows
    assert ran.outcome.rest.rows == reference("rows")


async def test_past_its_seconds_too_and_one_row_is_always_run() -> None:
    ran = await run(plan_of("loop", max_seconds=1e-9), Script(), 4)
    assert (ran.outcome.rows, ran.outcome.rest and ran.outcome.rest.row_count) == (1, 3)


async def test_in_a_cursor_a_break_leaves_the_rest_of_the_frame() -> None:
    body = Script(lambda index: Said(result={}, is_break=index == 1))
    ran = await run(plan_of("loop"), body, 5)
    assert (ran.outcome.rows, ran.outcome.outcomes) == (5, {"ok": 1, "break": 1, "skipped": 3})
    assert (ran.outcome.rest, body.begun) == (None, [0, 1])


async def test_in_a_fan_out_a_break_ends_its_own_row() -> None:
    ran = await run(plan_of("fanout"), Script(lambda index: Said(result={}, is_break=index == 1)), 3)
    assert ran.outcome.outcomes == {"ok": 2, "break": 1}


async def test_assignments_are_those_of_the_last_row_whenever_it_ended() -> None:
    body = Script(lambda index: Said(result={}, assigned={"ctx.last": index, f"ctx.seen.{index}": True}))
    ran = await run(plan_of("loop", row_concurrency=3), body, 3)
    assert ran.outcome.set == {"ctx.last": 2, "ctx.seen.0": True, "ctx.seen.1": True, "ctx.seen.2": True}


async def test_a_large_frame_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    small = await run(plan_of("loop"), Script(failing(2)), 5)
    monkeypatch.setattr(running, "_MANY", 2)
    large = await run(plan_of("loop"), Script(failing(2)), 5)
    assert small.outcome == large.outcome
    table = await run(plan_of("fanout"), Script(failing(2)), 5)
    assert returned(large) == without_lineage(table.output).to_pylist()


async def test_a_row_may_return_a_table_which_becomes_json() -> None:
    table = TableValue(pa.table({"a": [1]}))
    ran = await run(plan_of("loop"), Script(lambda _: Said(result=table)), 1)
    assert returned(ran) == [{"columns": ["a"], "rows": [{"a": 1}], "row_count": 1}]


async def test_the_body_of_a_reduce_runs_for_each_group() -> None:
    table = pa.table({"k": ["a", "a", "b"]})
    groups = [Group({"k": "a"}, table.slice(0, 2)), Group({"k": "b"}, table.slice(2))]
    plan = plan_of("reduce", process="frame")
    ran = await run_frame(plan, frame(2), Given(table, groups=groups), Script(failing(1)))
    assert (ran.outcome.outcomes, ran.outcome.errors[0]["data"]) == ({"ok": 1, "error": 1}, {"k": "b"})


# --- Whole frames


async def test_a_frame_that_is_run_whole_returns_what_it_likes() -> None:
    plan = plan_of("loop", process="frame")
    ran = await run(plan, Script(whole=Said(result=[{"a": 1}], assigned={"ctx.x": 1})), 4)
    assert (ran.outcome.rows, ran.outcome.outcomes, ran.outcome.set) == (4, {"ok": 4}, {"ctx.x": 1})
    assert ran.output.num_rows == 1


async def test_one_that_fails_fails_with_all_its_rows() -> None:
    error = {"kind": "transform", "code": "PY_ValueError", "message": "no", "retryable": False, "row": 2}
    ran = await run(plan_of("loop", process="frame"), Script(whole=Said(error=error, traceback="here")), 4, claim_row=6)
    assert ran.outcome.error == {**error, "row_index": 8, "data": {"id": 2}, "traceback": "here"}


async def test_rows_beyond_the_bytes_of_a_frame_wait_for_the_next_one() -> None:
    plan, given = plan_of("loop", process="frame", max_bytes=40), claim(20)
    part = whole_part(plan, given)
    assert 1 <= part.count < 20
    ran = await run_frame(plan, frame(20), part, Script(whole=Said(result=None)))
    assert ran.outcome.rest is not None
    assert ran.outcome.rows + ran.outcome.rest.row_count == 20


async def test_what_is_secret_is_not_shown() -> None:
    given = Given(claimed_table([{"value": "secret"}]), is_claim=True, column="value")
    ran = await run_frame(plan_of("fanout"), frame(1), given, Script(failing(0)))
    assert msgspec.to_builtins(ran.outcome)["errors"][0]["data"] == "***"
