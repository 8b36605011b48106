"""Tables from step to step, as a user writes them: no word about storage, and nothing lost when a run is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.e2e.cli import Home
from tests.e2e.scenes import CODE, Scene, at_the_gate, book, task

MAKE = """
import pyarrow as pa
from decimal import Decimal
result = pa.table({"id": list(range(50)), "price": [Decimal("1.50")] * 50, "name": ["x"] * 50})
"""


def python(code: str, **given: Any) -> dict[str, Any]:
    return {"kind": "python", "input": given, "code": code}


def run(scene: Scene, *steps: dict[str, Any]) -> Any:
    """The result of a playbook with these steps; what is in the log must hold."""
    document = scene.home.json("run", scene.write(book("tables", *steps)))
    assert document["status"] == "COMPLETED", document["error"]
    assert scene.home.run("verify", document["execution_id"]).code == 0
    return document["result"]


def stored(home: Home, step: str) -> list[Path]:
    return [path for path in (home.path / "payloads").rglob(f"{step}~1/**/*.bin") if path.is_file()]


def test_the_next_step_gets_the_table_and_templates_get_parts_of_it(scene: Scene) -> None:
    code = "result = {'types': [str(kind) for kind in t.schema.types], 'rows': t.num_rows, 'few': few, 'text': text}"
    given = {"t": "{{ make }}", "few": "{{ make.rows[1:3] }}", "text": "{{ make.row_count }} of {{ make.columns[2] }}"}
    assert run(scene, {"step": "make", "tool": python(MAKE)}, {"step": "read", "tool": python(code, **given)}) == {
        "types": ["int64", "decimal128(3, 2)", "string"],
        "rows": 50,
        "few": [{"id": 1, "price": 1.5, "name": "x"}, {"id": 2, "price": 1.5, "name": "x"}],
        "text": "50 of name",
    }


def test_a_table_is_stored_as_a_feather_file_that_others_can_read(scene: Scene) -> None:
    run(scene, {"step": "make", "tool": python(MAKE)})
    (file,) = stored(scene.home, "make")
    table = pa.ipc.open_file(str(file)).read_all()
    assert table.num_rows == 50
    assert str(table.schema.field("price").type) == "decimal128(3, 2)"


def test_the_result_of_a_step_can_be_looked_at(scene: Scene) -> None:
    document = scene.home.json("run", scene.write(book("tables", {"step": "make", "tool": python(MAKE)})))
    assert document["result"]["row_count"] == 50
    shown = scene.home.json("result", document["execution_id"], "make")
    assert shown["rows"] == 50
    assert shown["value"]["columns"] == ["id", "price", "name"]


def test_tables_pass_through_a_pipeline_and_across_a_call_inside_of_it(scene: Scene) -> None:
    child = book("child", {"step": "count", "tool": python("result = {'n': len(rows)}", rows="{{ workload.rows }}")})
    child["workload"] = {"rows": []}
    file = scene.place / "child.yaml"
    scene.write(child).rename(file)
    scene.home.run("register", file)
    pipeline = [
        {"name": "make", **python(MAKE)},
        {"name": "half", **python("result = t.slice(0, 25)", t="{{ _prev }}")},
        {"name": "ask", "kind": "playbook", "path": "child", "input": {"rows": "{{ half.rows }}"}},
        {"name": "read", **python("result = [made.num_rows, half.num_rows, str(made.schema.field('price').type), n]",
                                  made="{{ make }}", half="{{ results.half }}", n="{{ ask.n }}")},
    ]  # fmt: skip
    code = "result = {'read': s['data'], 'made': s['results']['make'].num_rows, 'half': half.num_rows}"
    assert run(
        scene,
        {"step": "all", "tool": pipeline},
        {"step": "after", "tool": python(code, s="{{ all }}", half="{{ all.results.half }}")},
    ) == {"read": [50, 25, "decimal128(3, 2)", 25], "made": 50, "half": 25}


def test_a_loop_over_rows_may_return_tables_again(scene: Scene) -> None:
    each = python("import pyarrow as pa\nresult = pa.table({'twice': [row['id'] * 2]})", row="{{ iter.row }}")
    result = run(
        scene,
        {"step": "make", "tool": python(MAKE)},
        {"step": "each", "loop": {"in": "{{ make.rows[:3] }}", "iterator": "row"}, "tool": each},
        {"step": "read", "tool": python("result = [one['rows'][0]['twice'] for one in all]", all="{{ each.results }}")},
    )
    assert result == [0, 2, 4]


def test_sql_reads_a_table_by_the_name_of_the_input(scene: Scene) -> None:
    query = {"kind": "duckdb", "database": ":memory:", "input": {"orders": "{{ make }}"},
             "query": "SELECT count(*) AS n, sum(price)::DOUBLE AS total FROM orders WHERE id >= 40"}  # fmt: skip
    result = run(scene, {"step": "make", "tool": python(MAKE)}, {"step": "sum", "tool": query})
    assert result["rows"] == [{"n": 10, "total": 15.0}]


def test_a_run_that_was_killed_goes_on_with_the_table_from_storage(scene: Scene) -> None:
    given = {**task("read", scene)["input"], "t": "{{ make }}"}
    read = python(CODE + "result = {'rows': t.num_rows, 'type': str(t.schema.field('price').type)}", **given)
    file = scene.write(book("tables", {"step": "make", "tool": python(MAKE)}, {"step": "read", "tool": read}))
    with at_the_gate(scene, "run", file, "--set", "stop=read") as process:
        process.kill()
    scene.open_gate()
    (execution,) = scene.roots()
    document = scene.home.json("resume", execution)
    assert document["result"] == {"rows": 50, "type": "decimal128(3, 2)"}
    assert scene.effects == {"read": 2}


def test_a_table_that_is_too_large_for_a_template_is_named(scene: Scene) -> None:
    many = "import pyarrow as pa\nresult = pa.table({'a': pa.repeat(1, 9_000_000)})"
    shell = {"kind": "python", "input": {"rows": "{{ make.rows }}"}, "code": "result = 1"}
    file = scene.write(book("tables", {"step": "make", "tool": python(many)}, {"step": "read", "tool": shell}))
    ended = scene.home.run("run", file, "--json")
    assert ended.code == 1
    message = ended.document["error"]["message"]
    assert "18000000 values is too much to be turned into JSON" in message
    assert "give it whole" in message
