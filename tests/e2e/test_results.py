"""Large results as a user meets them: where they are, how they are read, and what a kill does to them."""

from __future__ import annotations

import json
import select
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyarrow import feather

from tests.e2e.cli import Home
from tests.e2e.scenes import END, Scene, at_the_gate, book
from tests.e2e.test_offline import serving

HEAD = {"apiVersion": "noetl.io/v2", "kind": "Playbook"}
ROWS = "result = {'rows': [[n, f'row {n}'] for n in range(5000)], 'columns': ['n', 'name'], 'total': 5000}"
TEN_MB = "result = {'items': [{'n': n, 'text': 'x' * 1000, 'odd': {'n': n} if n % 2 else n} for n in range(10000)]}"


def python(code: str, **given: Any) -> dict[str, Any]:
    return {"kind": "python", "input": given, "code": code}


def written(place: Path, *steps: dict[str, Any]) -> Path:
    file = place / "large.yaml"
    metadata = {"name": "large", "path": "large"}
    file.write_text(json.dumps({**HEAD, "metadata": metadata, "workflow": list(steps)}), encoding="utf-8")
    return file


def objects(home: Home, step: str) -> list[Path]:
    """The objects of a step's results, without what describes them."""
    return sorted(home.path.glob(f"payloads/noetl/env=*/**/results/{step}~*/**/*.bin"))


def event_of(home: Home, execution: str, step: str, event_type: str = "call.done") -> dict[str, Any]:
    events = home.json("events", execution, "--type", event_type, "--limit", "1000")["events"]
    found: dict[str, Any] = next(event for event in events if event["node_name"] == step)
    return found


def test_ten_megabytes_of_json(new_home: Home, tmp_path: Path) -> None:
    read = python("result = {'last': last['n'], 'all': len(items)}", last="{{ make['items'][-1] }}",
                  items="{{ make['items'] }}")  # fmt: skip
    file = written(
        tmp_path,
        {"step": "make", "tool": python(TEN_MB), "next": {"arcs": [{"step": "read"}]}},
        {"step": "read", "tool": read},
    )
    run = new_home.json("run", file)
    assert run["result"] == {"last": 9999, "all": 10000}
    (stored,) = objects(new_home, "make")
    event = event_of(new_home, run["execution_id"], "make")
    assert event["payload_ref"]["key"] == str(stored.relative_to(new_home.path / "payloads"))
    assert event["payload_ref"]["bytes"] == stored.stat().st_size < 1_000_000
    shown = new_home.json("result", run["execution_id"], "make")
    assert (shown["bytes"] > 10_000_000, len(shown["value"]["items"])) == (True, 10000)
    report = new_home.json("replay", run["execution_id"], "--resolve-payloads")["payloads"]
    assert (report["missing_or_damaged"], event["payload_ref"]["uri"] in str(report)) == (0, True)


def test_rows_are_a_feather_file_at_the_derived_key(new_home: Home, tmp_path: Path) -> None:
    about = {"ref": "{{ load._ref }}", "store": "{{ load._store }}", "preview": "{{ load._preview }}"}
    file = written(
        tmp_path,
        {
            "step": "load",
            "tool": python(ROWS),
            "next": {"arcs": [{"step": "read", "when": "{{ load.rows[1100][0] == 1100 }}"}]},
        },
        {"step": "read", "tool": python("result = input_data", row="{{ load.rows[1100] }}", **about)},
    )
    run = new_home.json("run", file)
    execution = run["execution_id"]
    (stored,) = objects(new_home, "load")
    table = feather.read_table(stored)
    assert (table.num_rows, table.column_names) == (5000, ["n", "name"])
    assert f"execution={execution}/results/load~1/0/0/1.bin" in str(stored)
    uri = f"noetl://default/default/results/{execution}/load~1/0/0/1@v1"
    result = run["result"]
    assert (result["row"], result["ref"], result["store"]) == ([1100, "row 1100"], uri, "kv")
    assert result["preview"].startswith('{"columns":["n","name"],"rows":[[0,"row 0"]')
    beside = json.loads(Path(f"{stored}.meta.json").read_bytes())
    assert (beside["uri"], beside["rows"], beside["bytes"]) == (uri, 5000, stored.stat().st_size)


@pytest.mark.parametrize("name", ["ref", "legacy", "reference"])
def test_an_artifact_task_reads_a_result_by_its_name(new_home: Home, tmp_path: Path, name: str) -> None:
    asked = {
        "ref": {"uri": "{{ load._ref }}"},
        "legacy": {"uri": "noetl://execution/{{ execution_id }}/result/load/1"},
        "reference": {"result_ref": "{{ ctx.where }}"},
    }[name]
    file = written(
        tmp_path,
        {
            "step": "load",
            "tool": python(ROWS),
            "set": {"ctx.where": "{{ output.ref }}"},
            "next": {"arcs": [{"step": "get"}]},
        },
        {"step": "get", "tool": {"kind": "artifact", "action": "get", **asked}},
    )
    run = new_home.json("run", file)
    assert run["status"] == "COMPLETED", run
    assert (run["result"]["total"], run["result"]["rows"][7]) == (5000, [7, "row 7"])


# --- Kills


VARYING = """\
import os, stat, uuid
with open(place + "/effects", "a") as effects:
    effects.write("a\\n")
if stat.S_ISFIFO(os.stat(place + "/gate").st_mode):
    open(place + "/reached", "w").close()
    open(place + "/gate").read()
result = {"text": uuid.uuid4().hex * 10000, "id": uuid.uuid4().hex}
"""


def test_killed_between_storing_and_committing_it_goes_on(scene: Scene) -> None:
    """Nobody can write to the ledger while the result is stored, so the commit is still to come when the kill does."""
    file = scene.write(book("one", {"step": "a", "tool": python(VARYING, place=str(scene.place))}))
    with at_the_gate(scene, "run", file) as process:
        lock = sqlite3.connect(scene.home.ledger, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        scene.gate.write_text("")  # lets the step go on
        waited = 0.0
        while not objects(scene.home, "a"):
            assert process.poll() is None
            assert waited < END
            select.select([], [], [], 0.01)
            waited += 0.01
        process.send_signal(signal.SIGKILL)
        process.communicate()
        lock.execute("ROLLBACK")
        lock.close()
    (orphan,) = objects(scene.home, "a")
    left = orphan.read_bytes()
    (execution,) = scene.roots()
    assert scene.ended() == set()
    scene.open_gate()
    done = scene.home.json("resume", execution)
    assert done["status"] == "COMPLETED"
    (stored,) = objects(scene.home, "a")
    assert stored == orphan
    assert stored.read_bytes() != left
    assert done["result"]["id"] == scene.home.json("result", execution, "a")["value"]["id"]
    assert scene.home.run("verify", execution).code == 0
    assert scene.effects["a"] == 2


def test_a_result_that_nobody_needs_is_not_read_again(scene: Scene) -> None:
    waits = """\
import os, stat
if stat.S_ISFIFO(os.stat(place + "/gate").st_mode):
    open(place + "/reached", "w").close()
    open(place + "/gate").read()
result = {"n": n}
"""
    file = scene.write(
        book(
            "two",
            {"step": "a", "tool": python("result = {'text': 'x' * 100000, 'n': 5}")},
            {"step": "b", "tool": python(waits, place=str(scene.place), n="{{ a.n }}")},
        )
    )
    with at_the_gate(scene, "run", file) as process:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (stored,) = objects(scene.home, "a")
    stored.unlink()
    scene.open_gate()
    (execution,) = scene.roots()
    assert scene.home.json("resume", execution)["result"] == {"n": 5}
    lost = scene.home.run("result", execution, "a")
    assert lost.code == 2
    assert f"results/{execution}/a~1/0/0/1@v1' is not in the store any more" in lost.stderr
    assert "noetl repair" in lost.stderr


def test_a_flipped_bit_is_an_error_that_names_the_object(new_home: Home, tmp_path: Path) -> None:
    file = written(tmp_path, {"step": "load", "tool": python(ROWS)})
    run = new_home.json("run", file)
    (stored,) = objects(new_home, "load")
    data = bytearray(stored.read_bytes())
    data[len(data) // 2] ^= 1
    stored.chmod(0o600)
    stored.write_bytes(data)
    shown = new_home.run("result", run["execution_id"], "load")
    assert shown.code == 4
    assert "is damaged in object 'noetl/env=" in shown.stderr
    assert "noetl repair" in shown.stderr


# --- Elsewhere


def test_a_fork_adopts_the_object_of_its_source(new_home: Home, tmp_path: Path) -> None:
    read = python("result = {'row': row, 'sum': 1 // n}", row="{{ load.rows[1100] }}", n="{{ n }}")
    file = tmp_path / "fork.yaml"
    steps = [
        {"step": "load", "tool": python(ROWS), "next": {"arcs": [{"step": "read"}]}},
        {"step": "read", "tool": read},
    ]
    metadata = {"name": "fork", "path": "fork"}
    file.write_text(json.dumps({**HEAD, "metadata": metadata, "workload": {"n": 0}, "workflow": steps}))
    failed = new_home.run("run", file, "--json")
    assert failed.code == 1
    source = failed.document["execution_id"]
    retried = new_home.json("retry", source, "--from", "read", "--set", "n=1")
    assert retried["result"]["row"] == [1100, "row 1100"]
    adopted = event_of(new_home, retried["execution_id"], "load", "step.adopted")
    assert adopted["payload_ref"] == event_of(new_home, source, "load")["payload_ref"]
    assert len(objects(new_home, "load")) == 1


@pytest.mark.parametrize("tenant", ["default", "labs"])
def test_results_travel_with_their_execution(new_home: Home, tmp_path: Path, tenant: str) -> None:
    there = Home(tmp_path / "there")
    loop = {"in": [1, 2], "iterator": "n"}
    each = python("result = {'text': 'y' * 100000, 'n': n}", n="{{ n }}")
    file = written(
        tmp_path,
        {"step": "load", "tool": python(ROWS), "next": {"arcs": [{"step": "each"}]}},
        {"step": "each", "loop": loop, "tool": each},
    )
    run = new_home.json("run", file, "--offline")
    execution = run["execution_id"]
    env = {"NOETL_TENANT__ID": tenant}
    over = () if tenant == "default" else ("--as", tenant)
    with serving(there, env=env) as server:
        assert new_home.json("push", execution, "--to", server.url, *over)["status"] == "completed"
        assert new_home.json("push", execution, "--to", server.url, *over)["status"] == "already there"
    kept = objects(there, "load") + objects(there, "each")
    assert len(kept) == 4
    assert all(f"/tenant={tenant}/" in str(one) for one in kept)
    for step in ("load", "each"):
        ours, theirs = new_home.json("result", execution, step), there.json("result", execution, step, env=env)
        assert theirs["value"] == ours["value"]
    report = there.json("replay", execution, "--resolve-payloads", env=env)["payloads"]
    assert (report["payloads"] >= 4, report["missing_or_damaged"]) == (True, 0)
