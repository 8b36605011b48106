"""Cursor loops over a real work queue, as a user runs them: drained, killed and resumed, with poison among the rows."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import PROJECT_ROOT
from tests.e2e.scenes import Scene, book
from tests.services.counter import Counting, counting
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

CLAIM = """
UPDATE job SET state = 'claimed' WHERE id IN (
  SELECT id FROM job WHERE state = 'pending' ORDER BY id LIMIT {{ __frame_max_rows | int }} FOR UPDATE SKIP LOCKED)
RETURNING id, worth"""


@pytest.fixture
def counter() -> Iterator[Counting]:
    with counting() as counted:
        yield counted


@pytest.fixture
def queue(scene: Scene, postgres: Database) -> Database:
    data = [f"{name}={value}" for name, value in postgres.credential.items()]
    given = [part for one in data for part in ("--data", one)]
    done = scene.home.run("credential", "add", "pg_main", "--type", "postgres", *given)
    assert done.code == 0, done.stderr
    postgres.query("DROP TABLE IF EXISTS job; CREATE TABLE job (id int, state text DEFAULT 'pending', worth numeric)")
    return postgres


def fill(queue: Database, jobs: int) -> None:
    queue.query(f"INSERT INTO job (id, worth) SELECT g, g * 1.5 FROM generate_series(1, {jobs}) AS g")


def drain(*tasks: dict[str, Any], frame: dict[str, Any] | None = None, slots: int = 2, **spec: Any) -> dict[str, Any]:
    cursor = {"kind": "postgres", "auth": "pg_main", "claim": CLAIM, "options": spec.pop("options", {})}
    settings = {"mode": "cursor", "max_in_flight": slots, "frame": {"max_rows": 5, **(frame or {})}, **spec}
    return {"step": "drain", "loop": {"cursor": cursor, "iterator": "todo", "spec": settings}, "tool": list(tasks)}


def done_task() -> dict[str, Any]:
    update = "UPDATE job SET state = 'done' WHERE id = {{ iter.todo.id }}"
    return {"name": "save", "kind": "postgres", "auth": "pg_main", "command": update}


def post(counter: Counting) -> dict[str, Any]:
    return {"name": "call", "kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ todo.id }}}}", "json": {}}


def run(scene: Scene, file: Path, *, code: int = 0) -> dict[str, Any]:
    ran = scene.home.run("run", file, "--json")
    assert ran.code == code, ran.stderr
    document = ran.document
    assert scene.home.json("verify", document["execution_id"])["parity"]
    return document


def frames(scene: Scene) -> Counter[str]:
    with scene.home.sql() as log:
        said = log.execute("SELECT event_type FROM event WHERE event_type LIKE 'frame.%'")
        return Counter(row[0] for row in said)


def test_the_work_queue_of_the_reference_is_drained(scene: Scene, queue: Database) -> None:
    document = run(scene, PROJECT_ROOT / "examples/14_work_queue.yaml")
    assert document["status"] == "COMPLETED"
    found = queue.query("SELECT state, answer = id * 10, count(*) FROM guide_job GROUP BY 1, 2")
    assert found == [("done", True, 20)]
    loop = scene.home.json("result", document["execution_id"], "drain")["value"]
    assert loop["stats"] == {
        "total": 20, "success": 20, "failed": 0, "slots": 2, "frames": 4, "breaks": 0, "bytes": loop["stats"]["bytes"]
    }  # fmt: skip
    assert sum(slot["processed"] for slot in loop["results"]) == loop["count"] == 20
    assert frames(scene) == {"frame.dispatched": 4, "frame.started": 4, "frame.committed": 4}


@pytest.mark.parametrize("barrier", ["false", "true"])
def test_killed_in_the_middle_every_recorded_row_is_done_and_every_effect_is_known(
    barrier: str, scene: Scene, queue: Database, counter: Counting
) -> None:
    env = {"NOETL_EFFECTS__BARRIER": barrier}
    jobs, slots = 60, 3
    fill(queue, jobs)
    file = scene.write(book("work", drain(post(counter), done_task(), slots=slots)))
    counter.hold("/31")
    process = scene.home.start("run", file, env=env)
    counter.wait_held()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    counter.release()
    (execution,) = scene.roots()
    left = frames(scene)
    assert 0 < left["frame.committed"] < jobs // 5
    under_way = (left["frame.dispatched"] - left["frame.committed"]) * 5  # run or run already, and not committed
    document = scene.home.json("resume", execution, env=env)
    assert document["status"] == "COMPLETED", document
    assert scene.home.json("verify", execution)["parity"]
    states = {str(state): int(str(count)) for state, count in queue.query("SELECT state, count(*) FROM job GROUP BY 1")}
    # A slot that is killed between its claim and the record of it leaves rows as the claim did (DSL 4.6).
    unrecorded = states.pop("claimed", 0)
    assert unrecorded in range(0, slots * 5, 5)
    recorded = jobs - unrecorded
    assert states == {"done": recorded}
    assert len(counter.keys) == len(counter.calls) == recorded
    again = slots if barrier == "true" else under_way  # with it only the calls under way are made again
    assert counter.total <= recorded + again
    assert document["result"]["stats"]["total"] == recorded
    found = frames(scene)
    assert found["frame.committed"] == recorded // 5
    assert found["frame.abandoned"] >= 1


def test_poison_rows_are_isolated_and_named(scene: Scene, queue: Database) -> None:
    fill(queue, 12)
    code = "result = {'worth': 1 / (id - 7)}"
    poison = {"name": "work", "kind": "python", "input": {"id": "{{ iter.todo.id }}"}, "code": code}
    document = run(scene, scene.write(book("work", drain(poison, done_task()))))
    assert document["status"] == "COMPLETED"
    assert {name: document["result"]["stats"][name] for name in ("total", "success", "failed")} == {
        "total": 12, "success": 11, "failed": 1
    }  # fmt: skip
    assert queue.query("SELECT id, state FROM job WHERE state <> 'done'") == [(7, "claimed")]
    with scene.home.sql() as log:
        said = log.execute(
            "SELECT payload FROM event WHERE event_type = 'frame.committed' AND payload LIKE '%PY_ZeroDivisionError%'"
        )
        (error,) = json.loads(said.fetchone()[0])["errors"]
    assert error["data"] == {"id": 7, "worth": 10.5}
    assert "1 / (id - 7)" in error["traceback"]


def test_rows_that_fail_fail_the_step_where_it_says_so(scene: Scene, queue: Database) -> None:
    fill(queue, 6)
    poison = {"name": "work", "kind": "python", "code": "raise ValueError('no')"}
    step = drain(poison, policy={"failure": {"mode": "fail_at_end"}})
    document = run(scene, scene.write(book("work", step)), code=1)
    assert document["status"] == "FAILED"
    assert document["error"]["code"] == "PY_ValueError"
    assert document["result"]["stats"]["failed"] == 6


def test_a_break_ends_its_slot(scene: Scene, queue: Database) -> None:
    fill(queue, 20)
    rule = {"when": "{{ todo.id == 3 }}", "then": {"do": "break"}}
    tasks = [{"name": "look", "kind": "noop", "spec": {"policy": {"rules": [rule]}}}, done_task()]
    document = run(scene, scene.write(book("work", drain(*tasks, slots=1))))
    assert document["status"] == "COMPLETED"
    stats = document["result"]["stats"]
    assert (stats["breaks"], stats["frames"]) == (1, 1)
    assert queue.query("SELECT state, count(*) FROM job GROUP BY 1 ORDER BY 1") == [
        ("claimed", 3), ("done", 2), ("pending", 15)
    ]  # fmt: skip


def test_a_slot_stops_at_its_most_iterations(scene: Scene, queue: Database) -> None:
    fill(queue, 20)
    run(scene, scene.write(book("work", drain(done_task(), slots=1, options={"max_iterations": 10}))))
    assert queue.query("SELECT count(*) FROM job WHERE state = 'done'") == [(10,)]


def test_past_a_soft_limit_the_rest_of_a_claim_goes_on_as_a_frame_of_its_own(
    scene: Scene, queue: Database, counter: Counting
) -> None:
    fill(queue, 8)
    step = drain(post(counter), done_task(), slots=1, frame={"max_rows": 8, "max_bytes": 1})
    document = run(scene, scene.write(book("work", step)))
    assert document["result"]["stats"]["frames"] == 8
    assert queue.query("SELECT count(*) FROM job WHERE state = 'done'") == [(8,)]
    key = sorted(counter.keys)
    assert len(key) == 8
    assert all("/e1.s0.f0/" in one for one in key), "the rows keep the frame index of their claim"


def test_a_frame_is_given_to_code_whole(scene: Scene, queue: Database) -> None:
    fill(queue, 10)
    code = "result = [{'id': row['id'], 'twice': row['worth'] * 2, 'of': frame.table.num_rows} for row in frame.rows]"
    step = drain({"name": "work", "kind": "python", "code": code}, slots=1, frame={"process": "frame"})
    collect = {
        "step": "collect",
        "reduce": {"from": "drain"},
        "tool": {"kind": "python", "code": "result = {'rows': group.rows}"},
    }
    document = run(scene, scene.write(book("work", step, collect)))
    (found,) = document["result"]["preview"]
    assert [(row["id"], row["twice"], row["of"]) for row in found["rows"]] == [(n, n * 3.0, 5) for n in range(1, 11)]


@pytest.mark.parametrize("size", [1, 5000])
def test_what_rows_return_is_reduced_whether_an_event_has_it_or_an_object(
    size: int, scene: Scene, queue: Database
) -> None:
    fill(queue, 10)
    code = f"result = {{'kind': 'x' * {size}, 'id': input_data['id'], 'worth': input_data['worth']}}"
    given = {"input_data": "{{ {'id': iter.todo.id, 'worth': iter.todo.worth | float} }}"}
    step = drain({"name": "work", "kind": "python", "code": code, "args": given})
    collect = {
        "step": "collect",
        "reduce": {"from": "drain"},
        "tool": {
            "kind": "python",
            "code": "result = {'names': group.table.schema.names, 'worth': sum(row['worth'] for row in group.rows), "
            "'ids': sorted(row['id'] for row in group.rows)}",
        },
    }
    document = run(scene, scene.write(book("work", step, collect)))
    (found,) = document["result"]["preview"]
    assert found == {"names": ["kind", "id", "worth"], "worth": 82.5, "ids": list(range(1, 11))}
    with scene.home.sql() as log:
        events = log.execute(
            "SELECT payload_ref IS NULL, json_extract(payload, '$.returned') IS NULL FROM event "
            "WHERE event_type = 'frame.committed' AND node_name = 'drain'"
        ).fetchall()
    assert events == [(1, 0) if size == 1 else (0, 1)] * len(events)
    assert events


def test_a_claim_that_cannot_be_made_fails_the_step_with_its_reason(scene: Scene, queue: Database) -> None:
    queue.query("DROP TABLE job")
    document = run(scene, scene.write(book("work", drain(done_task()))), code=1)
    assert document["error"]["code"] == "PG_42P01"
    assert 'relation "job" does not exist' in document["error"]["message"]
