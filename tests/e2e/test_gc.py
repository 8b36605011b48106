"""Collecting garbage as a user does: what a killed run has left goes, what anything refers to stays."""

from __future__ import annotations

import hashlib
import os
import select
import signal
from pathlib import Path
from typing import Any

from tests.e2e.cli import Home
from tests.e2e.scenes import Scene, at_the_gate, book
from tests.services.buckets import Bucket
from tests.services.moto import SECRET, moto_bucket, moto_server

__all__ = ["moto_bucket", "moto_server"]

PAYLOADS = "noetl://default/default/payloads"
LARGE = "result = {'fill': 'x' * 100_000}"


def orphaning(scene: Scene) -> Path:
    """A pipeline that stores a file which only its report would name, and is held before that."""
    wait = f"open({str(scene.reached)!r}, 'w').close()\nopen({str(scene.gate)!r}).read()\nresult = 1"
    put = {"kind": "artifact", "action": "put", "uri": PAYLOADS, "data": "an orphan", "compress": False}
    pipeline = [{"name": "put", **put}, {"name": "wait", "kind": "python", "code": wait}]
    return scene.write(book("orphaning", {"step": "held", "tool": pipeline}))


def orphans_of(home: Home, count: int) -> list[Path]:
    """Payloads that nothing refers to, put beside those of the home."""
    made = []
    for number in range(count):
        content = b"orphan %d" % number
        digest = hashlib.sha256(content).hexdigest()
        file = home.path / "payloads" / "default" / digest[:2] / digest[2:4] / digest
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        made.append(file)
    return made


def large_run(home: Home, place: Path, **options: Any) -> str:
    (place / "large.yaml").write_text(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: large, path: large}\nworkflow:\n"
        f'  - step: start\n    tool: {{kind: python, code: "{LARGE}"}}\n'
    )
    run = home.json("run", place / "large.yaml", **options)
    assert run["status"] == "COMPLETED", run
    execution: str = run["execution_id"]
    return execution


def test_what_a_run_that_was_killed_has_left_goes_after_the_grace(scene: Scene) -> None:
    home = scene.home
    with at_the_gate(scene, "run", orphaning(scene)) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    [root] = scene.roots()
    home.json("cancel", root)
    young = home.json("gc")
    assert (young["dead"], young["young"]) == ([], 1)
    shown = home.run("gc", "--grace", "0s", "-v")
    digest = hashlib.sha256(b"an orphan").hexdigest()
    assert shown.code == 0
    assert f"payload  default/{digest[:2]}/{digest[2:4]}/{digest}" in shown.stdout
    assert "no event refers to it" in shown.stdout
    assert "nothing was deleted" in shown.stderr
    file = home.path / "payloads" / "default" / digest[:2] / digest[2:4] / digest
    assert file.exists()
    done = home.json("gc", "--delete", "--grace", "0s")
    assert [group["kind"] for group in done["dead"]] == ["payload", "sidecar"]
    assert done["removed"]["objects"] == 2
    assert not file.exists()
    assert home.json("gc", "--grace", "0s")["dead"] == []
    assert home.run("repair", "--all").code == 0
    assert home.run("verify", "--all").code == 0


def test_beside_a_run_that_goes_on_nothing_of_it_is_touched(scene: Scene) -> None:
    with at_the_gate(scene, "run", orphaning(scene)) as process:
        assert scene.home.json("gc", "--delete")["removed"]["objects"] == 0
        scene.gate.write_text("")
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_results_stay_as_long_as_their_execution_is_in_the_ledger(new_home: Home, tmp_path: Path) -> None:
    execution = large_run(new_home, tmp_path)
    assert new_home.json("gc", "--delete", "--grace", "0s")["removed"]["objects"] == 0
    assert new_home.json("result", execution, "start")["value"]["fill"] == "x" * 100_000


def test_drafts_of_dead_writers_go(new_home: Home, tmp_path: Path) -> None:
    large_run(new_home, tmp_path)
    draft = new_home.path / "payloads" / ".tmp" / "1-0123456789abcdef"
    draft.parent.mkdir(exist_ok=True)
    draft.write_bytes(b"half of it")
    [group] = new_home.json("gc")["dead"]
    assert (group["kind"], group["objects"], group["bytes"]) == ("draft", 1, 10)
    assert draft.exists()
    assert new_home.json("gc", "--delete")["removed"]["objects"] == 1
    assert not draft.exists()


def test_killed_in_the_middle_the_next_one_finishes(new_home: Home, tmp_path: Path) -> None:
    execution = large_run(new_home, tmp_path)
    files = orphans_of(new_home, 400)
    process = new_home.start("gc", "--delete", "--grace", "0s")
    while process.poll() is None and all(file.exists() for file in files):
        select.select([], [], [], 0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    left = sum(file.exists() for file in files)
    assert 0 < left < len(files)
    assert new_home.run("repair", "--all").code == 0
    again = new_home.json("gc", "--delete", "--grace", "0s")
    assert again["removed"]["objects"] == left
    assert new_home.json("result", execution, "start")["value"]["fill"] == "x" * 100_000


def test_two_at_once_are_no_worse_than_one(new_home: Home, tmp_path: Path) -> None:
    large_run(new_home, tmp_path)
    files = orphans_of(new_home, 150)
    running = [new_home.start("gc", "--delete", "--grace", "0s", "--json") for _ in range(2)]
    ended = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    assert not any(file.exists() for file in files)
    assert new_home.run("repair", "--all").code == 0


def test_a_shared_store_is_collected_only_by_the_ledger_it_belongs_to(tmp_path: Path) -> None:
    ours, theirs = Home(tmp_path / "ours"), Home(tmp_path / "theirs")
    env = {"NOETL_PAYLOADS__URL": (tmp_path / "store").as_uri()}
    execution = large_run(ours, tmp_path, env=env)
    large_run(theirs, tmp_path)
    assert theirs.run("gc", env=env).code == 0, "looking is free"
    refused = theirs.run("gc", "--delete", "--grace", "0s", env=env)
    assert refused.code == 2
    assert "--claim" in refused.stderr
    assert ours.json("gc", "--delete", "--claim", env=env)["removed"]["objects"] == 0
    for asked in ((), ("--claim",)):
        refused = theirs.run("gc", "--delete", "--grace", "0s", *asked, env=env)
        assert refused.code == 2
        assert "another ledger" in refused.stderr
    assert ours.json("gc", "--delete", "--grace", "0s", env=env)["looked_at"]["not_ours"] == 0
    assert ours.json("result", execution, "start", env=env)["value"]["fill"] == "x" * 100_000


def test_a_store_that_does_not_answer_is_said_so(new_home: Home, tmp_path: Path, moto_bucket: Bucket) -> None:
    env = {
        "NOETL_PAYLOADS__URL": f"{moto_bucket.url}/payloads",
        "NOETL_PAYLOADS__OPTIONS": f"endpoint={moto_bucket.options['endpoint']}, region=us-east-1, retries=0",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    large_run(new_home, tmp_path, env=env)
    assert new_home.json("gc", "--delete", "--claim", "--grace", "0s", env=env)["removed"]["objects"] == 0
    gone = env | {"NOETL_PAYLOADS__OPTIONS": "endpoint=http://127.0.0.1:9, region=us-east-1, retries=0"}
    refused = new_home.run("gc", env=gone)
    assert refused.code == 3
    assert "127.0.0.1:9" in refused.stderr


def test_a_grace_that_is_no_time_is_refused(new_home: Home, tmp_path: Path) -> None:
    large_run(new_home, tmp_path)
    refused = new_home.run("gc", "--grace", "soon")
    assert refused.code == 2
    assert "'soon'" in refused.stderr
