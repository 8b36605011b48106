"""What a body sees of a row, a frame and a group (4.6)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from noetl.engine.frames import FrameNames, Window, claim_names, group_names
from noetl.engine.pipeline import Pipeline, RunTask
from noetl.engine.script import Script
from noetl.kernel.event import Json
from noetl.payloads.tables import Rows, TableValue
from noetl.playbook import templates
from tests.unit.engine.play import NOW, book, step

ROWS: list[Json] = [{"id": 7}, {"id": 8}]


def names(**more: Any) -> FrameNames:
    given: Any = {"iterator": "todo", "index": 3, "base_index": 10, "slot": 1, "rows": ROWS, "policy": {"max_rows": 2}}
    return FrameNames(Window(**{**given, **more}))


def render(text: str, seen: dict[str, Any]) -> Any:
    return templates.render(text, seen)


class TestRows:
    def test_have_the_names_of_the_reference(self) -> None:
        seen = names().of_row(1, ROWS[1])
        assert seen["todo"] == seen["iter"]["todo"] == {"id": 8}
        numbers = {name: value for name, value in seen["iter"].items() if name != "todo"}
        assert numbers == {
            "_index": 11, "index": 11, "_first": False, "_worker_slot_id": 1, "_frame_index": 3, "_frame_row_index": 1,
            "_frame_row_count": 2, "parent": None,
        }  # fmt: skip
        assert (seen["loop_index"], seen["loop"]) == (11, {"index": 11, "first": False})
        assert render("{{ iter.todo.id + todo.id + frame.index }}", seen) == 19

    def test_do_not_know_how_many_there_will_be(self) -> None:
        assert render("{{ loop.length is defined }}", names().of_row(0, ROWS[0])) is False

    def test_share_the_frame(self) -> None:
        made = names()
        assert made.of_row(0, ROWS[0])["frame"] is made.of_row(1, ROWS[1])["frame"]


class TestFrames:
    def test_have_all_rows_at_once(self) -> None:
        seen = names().of_frame()
        assert seen["todo"] == seen["iter"]["todo"] == seen["iter"]["todo_rows"] == ROWS
        assert seen["frame"] == {
            "index": 3, "base_index": 10, "row_count": 2, "rows": ROWS, "worker_slot_id": 1, "policy": {"max_rows": 2},
        }  # fmt: skip
        assert [seen["iter"][name] for name in ("_index", "_frame_row_index", "_frame_row_count")] == [10, 0, 2]

    def test_have_a_table_that_stays_one(self) -> None:
        table = TableValue(pa.Table.from_pylist(ROWS))
        seen = names(rows=Rows(table.arrow), table=table).of_frame()
        assert render("{{ frame.rows[1].id + frame.table.row_count + frame.row_count }}", seen) == 12
        kept = templates.render_or_keep({"t": "{{ frame.table }}"}, seen, lazy=True)
        assert kept.value["t"] is table

    def test_a_pipeline_reads_them(self) -> None:
        loop = {
            "cursor": {"kind": "postgres", "auth": "a", "claim": "c"},
            "iterator": "todo",
            "spec": {"mode": "cursor"},
        }
        body = {
            "input": {"id": "{{ iter.todo.id }}", "at": "{{ iter._frame_row_index }}", "of": "{{ frame.row_count }}"}
        }
        one = book(step("drain", loop=loop, task=body)).steps["drain"]
        outer = {**names().of_row(1, ROWS[1]), "ctx": {"todo": "not this"}, "workload": {}, "step": {}}
        asked = Pipeline(Script(one, lambda _: {}), outer, templates.Host(now=NOW)).begin()
        assert isinstance(asked, RunTask)
        assert asked.input == {"id": 8, "at": 1, "of": 2}


class TestGroupsAndClaims:
    def test_a_group_has_its_key_and_its_rows(self) -> None:
        seen = group_names({"region": "eu"}, ROWS, 4, TableValue(pa.Table.from_pylist(ROWS)))
        assert (
            render("{{ group.key.region }}{{ group.row_count }}{{ group.index }}{{ group.rows[0].id }}", seen)
            == "eu247"
        )
        assert set(group_names({}, ROWS, 0)["group"]) == {"key", "index", "row_count", "rows"}

    def test_a_claim_knows_its_bounds_and_its_slot(self) -> None:
        seen = claim_names({"max_rows": 5}, 2)
        assert render("{{ __frame_max_rows }}/{{ __worker_slot_id }}/{{ __frame_policy.max_rows }}", seen) == "5/2/5"
