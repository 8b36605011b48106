"""A run whose step failed is gone on with once that is mended, and what was done stays done."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import Home, Result
from tests.e2e.scenes import Scene, at_the_gate, book, chain, task
from tests.e2e.test_kill import kill_at, query
from tests.e2e.test_run_kill import kill_when_reached

FAIL = """\
import os
with open(place + "/effects", "a") as effects:
    effects.write(name + "\\n")
if not os.path.exists(place + "/mended"):
    raise RuntimeError("not yet")
result = {"name": name}
"""


def breaking(scene: Scene) -> dict[str, Any]:
    """A chain whose third step fails until the file `mended` is there."""
    steps: list[dict[str, Any]] = [{"step": name, "tool": task(name, scene)} for name in ("a", "b", "c", "d")]
    steps[2]["tool"]["code"] = FAIL
    steps[0]["set"] = {"ctx.seen": "{{ result.name }}"}
    return book("chain", *steps)


def fail(scene: Scene, *more: str) -> str:
    file = scene.write(breaking(scene))
    failed = scene.home.run("run", file, "--json", *more)
    assert (failed.code, failed.document["status"]) == (1, "FAILED")
    return str(failed.document["execution_id"])


def mend(scene: Scene) -> None:
    (scene.place / "mended").touch()


def refused(result: Result, *words: str) -> None:
    assert result.code == 2, result
    assert all(word in result.stderr for word in words), result.stderr


def test_what_was_done_before_the_failure_is_not_done_again(scene: Scene) -> None:
    source = fail(scene)
    mend(scene)
    document = scene.home.json("retry", source)
    assert (document["status"], document["result"]) == ("COMPLETED", {"name": "d"})
    assert scene.effects == Counter("abccd")
    assert document["execution_id"] != source
    assert document["forked_from"]["execution_id"] == source
    assert scene.home.json("status", document["execution_id"])["forked_from"]["step"] == "c"
    assert "forked_from" not in scene.home.run("status", source, "--json").document
    assert scene.home.run("verify", "--all").code == 0


def test_a_person_is_told_what_happens(scene: Scene) -> None:
    source = fail(scene)
    mend(scene)
    shown = scene.home.run("retry", source)
    assert shown.code == 0
    assert f"2 steps of {source} adopted; 'c' and what follows it run, with their side effects" in shown.stderr
    assert "✓ c" in shown.stderr
    assert json.loads(shown.stdout) == {"name": "d"}
    (retried,) = [one for one in scene.roots() if one != source]
    assert source in scene.home.run("status", retried).stdout


def test_a_retry_that_fails_again_can_be_retried(scene: Scene) -> None:
    source = fail(scene)
    again = scene.home.run("retry", source, "--json")
    assert (again.code, again.document["status"]) == (1, "FAILED")
    mend(scene)
    document = scene.home.json("retry", again.document["execution_id"])
    assert (document["status"], scene.effects) == ("COMPLETED", Counter("abcccd"))


def test_any_step_may_be_begun_with(scene: Scene) -> None:
    source = fail(scene)
    mend(scene)
    document = scene.home.json("retry", source, "--from", "b")
    assert (document["status"], scene.effects) == ("COMPLETED", Counter("abbccd"))
    document = scene.home.json("retry", document["execution_id"], "--from", "d")
    assert (document["status"], scene.effects) == ("COMPLETED", Counter("abbccdd"))


def test_the_document_is_the_one_that_ran(scene: Scene) -> None:
    source = fail(scene)
    mend(scene)
    other = breaking(scene)
    other["workflow"][3]["tool"] = {"kind": "noop", "result": "another"}
    file = scene.write(other)
    scene.home.json("register", file)
    assert scene.home.json("retry", source)["result"] == {"name": "d"}
    assert scene.home.json("retry", source, "--latest")["result"] == "another"
    assert scene.home.json("retry", source, "--file", file)["result"] == "another"


def test_a_repaired_document_must_know_what_is_adopted(scene: Scene) -> None:
    source = fail(scene)
    repaired = breaking(scene)
    repaired["workflow"] = repaired["workflow"][1:]
    refused(
        scene.home.run("retry", source, "--file", scene.write(repaired)),
        "has no step 'a', whose result is to be adopted",
        "keep step 'a', or begin with a step that ran before it",
    )
    refused(scene.home.run("retry", source, "--file", scene.place / "playbook.yaml", "--latest"), "choose one of them")


def test_values_of_the_workload_can_be_replaced(scene: Scene) -> None:
    source = fail(scene, "--set", "note=old")
    mend(scene)
    document = scene.home.json("retry", source, "--set", "note=new", "--set", "extra=[1]")
    state = scene.home.json("replay", document["execution_id"])
    assert state["workload"] == {"stop": "", "note": "new", "extra": [1]}
    assert state["ctx"] == {"seen": "a"}


def test_the_same_key_is_the_same_retry(scene: Scene) -> None:
    source = fail(scene, "--key", "daily")
    mend(scene)
    one = scene.home.json("retry", source, "--key", "daily-again")
    two = scene.home.json("retry", source, "--key", "daily-again")
    assert one["execution_id"] == two["execution_id"]
    assert scene.effects == Counter("abccd")
    refused(scene.home.run("retry", source, "--key", "daily"), "key 'daily' belongs to execution", "another --key")


def test_a_retry_that_was_killed_is_resumed(scene: Scene) -> None:
    source = fail(scene, "--set", "stop=d")
    mend(scene)
    with at_the_gate(scene, "retry", source) as process:
        process.kill()
        process.wait()
    scene.open_gate()
    (retried,) = [one for one in scene.roots() if one != source]
    document = scene.home.json("resume", retried)
    assert (document["status"], document["forked_from"]["execution_id"]) == ("COMPLETED", source)
    assert scene.effects == Counter("abccdd")
    assert scene.home.run("verify", "--all").code == 0


@pytest.mark.parametrize("moment", ["step.adopted", "step.exit"])
def test_a_retry_killed_at_any_moment_is_one_retry(moment: str, scene: Scene) -> None:
    source = fail(scene)
    mend(scene)
    process = scene.home.start("retry", source, "--key", "again")
    kill_at(
        process, scene.home, query(f"SELECT 1 FROM event WHERE event_type = '{moment}' AND execution_id != {source}")
    )
    document = scene.home.json("retry", source, "--key", "again")
    assert (document["status"], document["result"]) == ("COMPLETED", {"name": "d"})
    assert (scene.effects["a"], scene.effects["b"]) == (1, 1)
    assert scene.effects.total() <= 6, "at most the one in flight ran twice"
    assert len(scene.roots()) == 2
    assert scene.home.run("verify", "--all").code == 0


def test_what_cannot_be_retried_is_said_so(scene: Scene) -> None:
    source = fail(scene)
    mend(scene)
    done = scene.home.json("retry", source)["execution_id"]
    refused(
        scene.home.run("retry", done), "is COMPLETED and no step of it has failed", "--from STEP; steps: a, b, c, d"
    )
    refused(scene.home.run("retry", source, "--from", "x"), "there is no step 'x' in chain", "steps: a, b, c, d")
    refused(scene.home.run("retry", "1234"), "there is no execution 1234", "noetl list")
    refused(scene.home.run("retry", "abc"), "'abc' is not an execution id")
    refused(scene.home.run("retry", source, "--file", scene.place / "none.yaml"), "there is no file")


def test_what_is_still_running_is_left_alone(scene: Scene) -> None:
    file = chain(scene)
    kill_when_reached(scene, file, "c")
    (running,) = scene.roots()
    refused(scene.home.run("retry", running, "--from", "b"), "is still running", f"noetl resume {running}", "--force")
    forced = scene.home.json("retry", running, "--from", "b", "--force")
    assert forced["status"] == "COMPLETED"
    assert scene.home.json("status", running)["status"] == "RUNNING"


def test_a_home_without_a_ledger_is_said_so(tmp_path: Path) -> None:
    refused(Home(tmp_path / "home").run("retry", "1234"), "there is no ledger")


def test_the_log_of_a_retry_stands_for_itself(scene: Scene, tmp_path: Path) -> None:
    source = fail(scene)
    mend(scene)
    retried = scene.home.json("retry", source)
    log = tmp_path / "retry.jsonl"
    assert scene.home.run("export", retried["execution_id"], "--format", "jsonl", "--out", log).code == 0
    elsewhere = Home(tmp_path / "elsewhere")
    assert elsewhere.run("import", log).code == 0
    assert elsewhere.json("replay", retried["execution_id"])["checksum"] == retried["checksum"]
    assert elsewhere.run("status", source).code == 2
