"""What every host of slots must do: the same playbook gives the same rows wherever its frames run.

A subclass says which engine its stages ask for. Stages run over files, lists and results, so nothing else is needed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.frame.output import LINEAGE
from noetl.data.stage.inputs import payload_ref_of
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.tail import Stream
from noetl.runtime.calls import Finished
from noetl.runtime.embedded.runner import Runner, open_runner
from noetl.runtime.home import Home
from noetl.runtime.requests import Origin, Request
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings

ORIGIN = Origin(home={"env": "dev", "region": "local", "cell": "local-a"})
SQUARE = "result = {'id': id, 'square': id * id}"
DOUBLE = """
import pyarrow.compute as pc
result = frame.table.append_column("double", pc.multiply(frame.table["id"], 2))
"""


class Ground:
    """An installation with a host, and what ran on it."""

    def __init__(self, place: Path, embedded: Embedded, runner: Runner, engine: str) -> None:
        self.place = place
        self.engine = engine
        self.embedded = embedded
        self.runner = runner

    def fanout(self, over: Any, tool: Any, name: str = "spread", **spec: Any) -> Json:
        """A step that runs over something in frames."""
        settings = {"mode": "fanout", "engine": self.engine, **spec}
        return {"step": name, "loop": {"in": over, "iterator": "row", "spec": settings}, "tool": tool}

    async def run(self, *steps: Json) -> Finished:
        """Run steps one after the other, and prove what was written."""
        for one, following in itertools.pairwise(steps):
            one["next"] = {"arcs": [{"step": following["step"]}]}
        head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "t", "path": "t"}}
        document = msgspec.json.encode({**head, "workflow": list(steps)}).decode()
        execution = await self.runner.start(Request(document=document))
        finished = await self.runner.wait(execution)
        await self.embedded.projector.catch_up(snapshots=False)
        verified = await self.embedded.verifier.verify(Stream(ORIGIN.tenant_id, f"execution/{execution}"))
        assert verified.ok, verified.problems
        return finished

    async def register(self, path: str, *steps: Json) -> None:
        """A playbook for others to call."""
        head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": path, "path": path}}
        document = msgspec.json.encode({**head, "workflow": list(steps)}).decode()
        await self.embedded.catalog.register(ORIGIN.tenant_id, path, "Playbook", document)

    async def surface(self, finished: Finished, name: str) -> list[Json]:
        """The rows of a surface of an execution, oldest first."""
        root = Stream(ORIGIN.tenant_id, f"execution/{finished.execution_id}")
        found = await self.embedded.projections.load(root, surface=name)
        return [msgspec.json.decode(item.row) for item in found]

    async def rows(self, result: Json, *, lineage: bool = False) -> list[Json]:
        """The output of a stage, in its order."""
        listed = await self.embedded.results.value(payload_ref_of(result["ref"]))
        rows: list[Json] = []
        for frame in listed["frames"]:
            table = await self.embedded.tiers.table(msgspec.convert(frame["output"], PayloadRef))
            rows += (table if lineage else table.drop_columns(list(LINEAGE))).to_pylist()
        return rows


@asynccontextmanager
async def ground(place: Path, engine: str, settings: Settings | None = None) -> AsyncIterator[Ground]:
    """A new installation."""
    async with (
        open_embedded(Home(place / "home"), settings or Settings(), create=True) as embedded,
        open_runner(embedded, ORIGIN, directory=place, scratch=place / "scratch", slots=2) as runner,
    ):
        yield Ground(place, embedded, runner, engine)


def square() -> Json:
    return {"kind": "python", "input": {"id": "{{ iter.row.id }}"}, "code": SQUARE}


def numbers(count: int) -> list[Json]:
    return [{"id": number} for number in range(count)]


def error_of(finished: Finished) -> Json:
    assert finished.status == "FAILED"
    assert finished.error is not None
    return finished.error


def write_parquet(place: Path) -> None:
    for number, first in enumerate((0, 40)):
        table = pa.table({"id": list(range(first, first + 40 + 20 * number))})
        pq.write_table(table, place / f"part{number}.parquet", row_group_size=25)


def write_csv(place: Path) -> None:
    (place / "all.csv").write_text("id,name\n" + "".join(f"{n},n{n}\n" for n in range(100)))


def write_json_lines(place: Path) -> None:
    (place / "all.jsonl").write_text("".join(f'{{"id": {n}}}\n' for n in range(100)))


def write_arrow(place: Path) -> None:
    table = pa.table({"id": list(range(100))})
    with pa.ipc.new_file(str(place / "all.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=30)


FILES: dict[str, tuple[Callable[[Path], None], Any]] = {
    "parquet": (write_parquet, {"path": "*.parquet"}),
    "csv": (write_csv, {"csv": "all.csv"}),
    "json lines": (write_json_lines, "all.jsonl"),
    "arrow": (write_arrow, {"arrow": "all.arrow"}),
}


async def check_lineage(on: Ground, finished: Finished) -> None:
    """Two stages, one over the frames of the other: every row of theirs leads to where it is from."""
    first, second = await on.surface(finished, "stages")
    assert (first.get("parent_stage_id"), second.get("parent_stage_id")) == (None, first["stage_id"])
    frames = await on.surface(finished, "frames")
    own = {frame["frame_id"] for frame in frames if frame["stage_id"] == first["stage_id"]}
    commands = {first["stage_id"]: first["command_id"], second["stage_id"]: second["command_id"]}
    for frame in frames:
        assert frame["command_id"] == commands[frame["stage_id"]] is not None
        assert int(frame["frame_id"]) <= int(frame["claimed_event_id"]) < int(frame["terminal_event_id"])
        output = msgspec.convert(frame["output_ref"], PayloadRef)
        assert output.key is not None, "shared memory alone is no place for an output"
        assert await on.embedded.results.exists(output)
    parents = {frame["stage_id"]: frame["parent_frame_id"] for frame in frames if frame.get("parent_frame_id")}
    assert first["stage_id"] not in parents
    assert own.issuperset(parents.values())


class SlotHostContract:
    engine = "worker"

    @pytest.fixture
    async def on(self, tmp_path: Path) -> AsyncIterator[Ground]:
        async with ground(tmp_path, self.engine) as made:
            yield made

    # --- What is run over

    async def test_every_row_of_a_list_is_run_once_and_in_its_place(self, on: Ground) -> None:
        step = on.fanout(numbers(25), square(), max_in_flight=3, frame={"max_rows": 4})
        result = (await on.run(step)).result
        assert await on.rows(result) == [{"id": n, "square": n * n} for n in range(25)]
        assert (result["rows"], result["frames"], result["stats"]["total"]) == (25, 7, 25)
        assert result["preview"][0] == {"id": 0, "square": 0}

    async def test_items_that_are_no_mappings_are_what_they_are(self, on: Ground) -> None:
        tool = {"kind": "python", "input": {"item": "{{ iter.row }}"}, "code": "result = item"}
        result = (await on.run(on.fanout(["a", "b", "c"], tool))).result
        assert await on.rows(result) == [{"result": "a"}, {"result": "b"}, {"result": "c"}]

    @pytest.mark.parametrize("form", FILES)
    async def test_files_are_run_over_by_rows(self, form: str, on: Ground) -> None:
        write, over = FILES[form]
        write(on.place)
        step = on.fanout(over, {"kind": "python", "code": DOUBLE}, frame={"max_rows": 30, "process": "frame"})
        result = (await on.run(step)).result
        found = await on.rows(result)
        assert [(row["id"], row["double"]) for row in found] == [(n, n * 2) for n in range(100)]
        assert result["frames"] == 4

    async def test_an_empty_input_ends_at_once_with_nothing(self, on: Ground) -> None:
        finished = await on.run(on.fanout([], square()))
        assert finished.status == "COMPLETED"
        assert (finished.result["rows"], finished.result["frames"], finished.result["preview"]) == (0, 0, [])

    async def test_a_glob_that_matches_nothing_fails_unless_that_is_allowed(self, on: Ground) -> None:
        finished = await on.run(on.fanout({"path": "none/*.csv"}, square()))
        assert error_of(finished)["code"] == "STAGE_INPUT"
        assert "no file is at 'none/*.csv'" in error_of(finished)["message"]
        finished = await on.run(on.fanout({"path": "none/*.csv", "on_missing": "skip"}, square()))
        assert (finished.status, finished.result["rows"]) == ("COMPLETED", 0)

    async def test_a_file_with_other_columns_fails_the_stage_or_is_left_out(self, on: Ground) -> None:
        pq.write_table(pa.table({"id": [1, 2]}), on.place / "a.parquet")
        pq.write_table(pa.table({"other": [3]}), on.place / "b.parquet")
        finished = await on.run(on.fanout({"path": "*.parquet"}, square()))
        assert "b.parquet: its columns are others" in error_of(finished)["message"]
        finished = await on.run(on.fanout({"path": "*.parquet", "on_drift": "skip"}, square()))
        assert [row["id"] for row in await on.rows(finished.result)] == [1, 2]

    async def test_the_rows_of_a_partition_are_cut_to_the_bounds_of_a_frame(self, on: Ground) -> None:
        write_parquet(on.place)
        step = on.fanout({"path": "*.parquet"}, {"kind": "noop"}, partitions=2, frame={"max_rows": 20})
        assert (await on.run(step)).result["frames"] == 5
        step = on.fanout({"path": "*.parquet"}, {"kind": "noop"}, partitions=10, frame={"max_rows": 50_000})
        assert (await on.run(step)).result["frames"] == 10

    async def test_by_a_key_its_rows_are_together(self, on: Ground) -> None:
        rows = [{"id": n, "city": f"c{n % 3}"} for n in range(30)]
        code = "result = [{'cities': sorted({row['city'] for row in frame.rows}), 'n': len(frame.rows)}]"
        step = on.fanout(
            rows, {"kind": "python", "code": code}, by=["city"], frame={"max_rows": 10, "process": "frame"}
        )
        found = await on.rows((await on.run(step)).result)
        assert found == [{"cities": [f"c{n}"], "n": 10} for n in range(3)]

    # --- Bodies

    async def test_a_fan_out_runs_over_what_another_has_made(self, on: Ground) -> None:
        first = on.fanout(numbers(20), square(), frame={"max_rows": 6})
        again = {"kind": "python", "input": {"square": "{{ row.square }}"}, "code": "result = {'next': square + 1}"}
        second = on.fanout("{{ spread.ref }}", again, name="second", frame={"max_rows": 7})
        finished = await on.run(first, second)
        found = await on.rows(finished.result, lineage=True)
        assert [row["next"] for row in found] == [n * n + 1 for n in range(20)]
        assert len({row["_parent_frame_id"] for row in found}) == 4
        assert [row["_row_index"] for row in found] == [*range(7), *range(7), *range(6)]
        assert len({row["_frame_id"] for row in found}) == 3
        await check_lineage(on, finished)

    async def test_names_of_a_row_and_its_frame(self, on: Ground) -> None:
        names = {
            "at": "{{ iter._index }}", "frame": "{{ iter._frame_index }}", "of": "{{ iter._frame_row_count }}",
            "place": "{{ iter._frame_row_index }}", "bare": "{{ row.id }}",
        }  # fmt: skip
        code = "result = {'said': [bare, frame, place, of]}"
        step = on.fanout(numbers(5), {"kind": "python", "input": names, "code": code}, frame={"max_rows": 3})
        found = await on.rows((await on.run(step)).result)
        assert [row["said"] for row in found] == [[0, 0, 0, 3], [1, 0, 1, 3], [2, 0, 2, 3], [3, 1, 0, 2], [4, 1, 1, 2]]

    @pytest.mark.parametrize("wide", [1, 4])
    async def test_poison_is_isolated_from_the_rows_around_it(self, wide: int, on: Ground) -> None:
        code = "result = {'id': id, 'q': 12 / (id - 5)}"
        tool = {"kind": "python", "input": {"id": "{{ iter.row.id }}"}, "code": code}
        step = on.fanout(
            numbers(9),
            tool,
            frame={"max_rows": 4, "row_concurrency": wide},
            policy={"failure": {"mode": "best_effort"}},
        )
        finished = await on.run(step)
        assert finished.status == "COMPLETED"
        assert finished.result["stats"] | {"bytes": 0} == {
            "total": 9, "success": 8, "failed": 1, "frames": 3, "breaks": 0, "bytes": 0, "slots": 8
        }  # fmt: skip
        assert [row["id"] for row in await on.rows(finished.result)] == [0, 1, 2, 3, 4, 6, 7, 8]

    async def test_a_whole_frame_that_fails_says_why_and_which_row(self, on: Ground) -> None:
        code = """
error = ValueError("not this one")
error.row = 2
raise error
"""
        tool = {"kind": "python", "code": code}
        finished = await on.run(on.fanout(numbers(4), tool, frame={"max_rows": 4, "process": "frame"}))
        error = error_of(finished)
        assert (error["code"], error["row_index"], error["data"]) == ("PY_ValueError", 2, {"id": 2})
        assert "not this one" in error["message"]

    async def test_what_rows_assign_is_merged_in_the_order_of_rows(self, on: Ground) -> None:
        tool = {"name": "mark", "kind": "noop", "set": {"ctx.last": "{{ row.id }}"}}
        step = on.fanout(numbers(10), [tool], max_in_flight=4, frame={"max_rows": 2})
        report = {
            "step": "say",
            "tool": {"kind": "python", "input": {"last": "{{ ctx.last }}"}, "code": "result = last"},
        }
        assert (await on.run(step, report)).result == 9

    async def test_a_row_may_call_a_playbook_which_may_have_a_stage_of_its_own(self, on: Ground) -> None:
        inner = on.fanout("{{ workload.items }}", {"kind": "noop"}, name="inner")
        await on.register("child", inner)
        call = {"kind": "playbook", "path": "child", "input": {"items": [1, 2, "{{ row.id }}"]}, "return_step": "inner"}
        done = await on.run(on.fanout(numbers(3), call, max_in_flight=3, frame={"max_rows": 2}))
        assert done.status == "COMPLETED", done.error
        assert [row["rows"] for row in await on.rows(done.result)] == [3, 3, 3]

    # --- Reduce

    async def test_groups_are_whole_whichever_frames_their_rows_are_from(self, on: Ground) -> None:
        rows = [{"id": n, "city": f"c{n % 7}"} for n in range(100)]
        keep = {"kind": "python", "input": {"row": "{{ iter.row }}"}, "code": "result = row"}
        spread = on.fanout(rows, keep, frame={"max_rows": 9})
        code = (
            "result = {'city': group.key['city'], 'n': group.table.num_rows, 'sum': sum(r['id'] for r in group.rows)}"
        )
        total = {
            "step": "total",
            "reduce": {"from": "spread", "by": ["city"]},
            "tool": {"kind": "python", "code": code},
        }
        finished = await on.run(spread, total)
        expected = Counter(row["city"] for row in rows)
        found = await on.rows(finished.result)
        assert {row["city"]: row["n"] for row in found} == expected
        assert sum(row["sum"] for row in found) == sum(range(100))
        assert finished.result["stats"]["total"] == 7

    async def test_without_a_key_there_is_one_group_of_all(self, on: Ground) -> None:
        spread = on.fanout(numbers(50), square(), frame={"max_rows": 8})
        code = "result = {'n': group.table.num_rows, 'key': group.key}"
        total = {"step": "total", "reduce": {"from": "spread"}, "tool": {"kind": "python", "code": code}}
        assert (await on.run(spread, total)).result["preview"] == [{"n": 50, "key": {}}]

    async def test_a_reduce_of_nothing_is_nothing(self, on: Ground) -> None:
        total = {"step": "total", "reduce": {"from": "spread", "by": ["x"]}, "tool": {"kind": "noop"}}
        finished = await on.run(on.fanout([], square()), total)
        assert (finished.status, finished.result["rows"]) == ("COMPLETED", 0)

    async def test_how_many_slots_there_are_changes_nothing(self, on: Ground) -> None:
        found = []
        for slots in (1, 5):
            step = on.fanout(numbers(30), square(), max_in_flight=slots, frame={"max_rows": 4})
            found.append(await on.rows((await on.run(step)).result))
        assert found[0] == found[1]

    # --- Sizes

    @pytest.mark.parametrize("bound", [{"max_seconds": 0.05}, {"max_bytes": 2000}], ids=["seconds", "bytes"])
    async def test_past_a_soft_limit_the_rest_is_a_frame_of_its_own(self, bound: Json, on: Ground) -> None:
        code = "import time\ntime.sleep(0.03)\nresult = {'id': id, 'text': 'x' * 500}"
        tool = {"kind": "python", "input": {"id": "{{ row.id }}"}, "code": code}
        finished = await on.run(on.fanout(numbers(12), tool, max_in_flight=1, frame={"max_rows": 12, **bound}))
        found = await on.rows(finished.result, lineage=True)
        assert [(row["id"], row["_row_index"]) for row in found] == [(n, n) for n in range(12)]
        assert finished.result["stats"]["total"] == 12
        frames = await on.surface(finished, "frames")
        assert len(frames) == finished.result["frames"] > 2
        assert [frame.get("parent_frame_id") for frame in frames] == [None, *(one["frame_id"] for one in frames[:-1])]

    async def test_one_key_may_have_almost_all_rows(self, on: Ground) -> None:
        rows = [{"id": n, "key": "all" if n % 20 else f"k{n}"} for n in range(400)]
        keep = {"kind": "python", "code": "result = frame.table"}
        spread = on.fanout(rows, keep, by=["key"], frame={"max_rows": 50, "process": "frame"})
        code = "result = {'key': group.key['key'], 'n': group.table.num_rows, 'sum': sum(r['id'] for r in group.rows)}"
        total = {
            "step": "total",
            "reduce": {"from": "spread", "by": ["key"]},
            "tool": {"kind": "python", "code": code},
        }
        finished = await on.run(spread, total)
        frames = [frame for frame in await on.surface(finished, "frames") if frame["row_count"]]
        assert max(frame["row_count"] for frame in frames) <= 50
        found = {row["key"]: (row["n"], row["sum"]) for row in await on.rows(finished.result)}
        assert len(found) == 21
        assert found["all"] == (380, sum(n for n in range(400) if n % 20))

    async def test_nothing_stays_nothing_through_every_kind_of_stage(self, on: Ground) -> None:
        (on.place / "none.csv").write_text("id,name\n")
        pq.write_table(pa.table({"id": pa.array([], pa.int64())}), on.place / "none.parquet")
        double = {"kind": "python", "code": DOUBLE}
        code = {"kind": "python", "code": "result = {'n': group.table.num_rows}"}
        finished = await on.run(
            on.fanout({"csv": "none.csv"}, square(), name="lines"),
            on.fanout({"path": "none.parquet"}, double, name="files", frame={"process": "frame"}),
            on.fanout("{{ files.ref }}", square(), name="again"),
            {"step": "keys", "reduce": {"from": "again", "by": ["id"]}, "tool": code},
            {"step": "all", "reduce": {"from": "keys"}, "tool": code},
        )
        assert finished.status == "COMPLETED", finished.error
        stages = await on.surface(finished, "stages")
        assert [(stage["status"], stage.get("rows", 0), stage.get("dispatched", 0)) for stage in stages] == [
            ("COMPLETED", 0, 0)
        ] * 5
        assert (finished.result["rows"], finished.result["frames"], finished.result["preview"]) == (0, 0, [])
