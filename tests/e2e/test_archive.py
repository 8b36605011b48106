"""Archiving as a user does: out of a home, anywhere, and back."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import FRAMES, ORDERS, PROJECT_ROOT, Home
from tests.services.buckets import Bucket
from tests.services.moto import SECRET, moto_bucket, moto_server

__all__ = ["moto_bucket", "moto_server"]

SUB_PLAYBOOK = PROJECT_ROOT / "examples" / "06_sub_playbook.yaml"
ON_COMPLETION = {"NOETL_ARCHIVE__ON_COMPLETION": "true"}
DEADLINE = 30.0


def told(home: Home, capsys: Any, *args: str, code: int = 0) -> dict[str, Any]:
    result = home.here(capsys, *args, "--json")
    assert result.code == code, result
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_history_leaves_a_home_and_comes_back_in_another(home: Home, new_home: Home, capsys: Any) -> None:
    made = told(home, capsys, "archive", ORDERS)
    assert (made["execution_id"], made["created"]) == (ORDERS, True)
    assert not told(home, capsys, "archive", ORDERS)["created"]
    assert told(home, capsys, "archive", "list", "--tenant", "acme")["archives"] == [
        {name: value for name, value in made.items() if name != "created"}
    ]
    key = told(home, capsys, "archive", "key")["public_key"]
    verified = told(new_home, capsys, "archive", "verify", made["uri"], "--trusted", key)
    assert (verified["ok"], verified["trusted"], verified["events"]) == (True, True, made["events"])
    replayed = told(new_home, capsys, "replay", "--from-archive", made["uri"], "--trusted", key)
    assert not new_home.path.exists(), "neither needs a home"
    live = told(home, capsys, "replay", ORDERS)
    assert replayed["projection_checksums"] == live["projection_checksums"]
    assert replayed["checksum"] == live["checksum"]
    restored = told(new_home, capsys, "restore", made["uri"], "--trusted", key)
    assert (restored["written"], restored["present"]) == (made["events"], 0)
    assert told(new_home, capsys, "verify", ORDERS)["parity"]
    assert told(new_home, capsys, "replay", ORDERS)["checksum"] == live["checksum"]
    assert told(new_home, capsys, "restore", made["uri"])["present"] == made["events"]


def test_what_was_changed_is_named_and_exits_4(home: Home, new_home: Home, capsys: Any) -> None:
    uri = told(home, capsys, "archive", ORDERS)["uri"]
    segment = next(Path(uri.removeprefix("file://"), "events").glob("*.zst"))
    segment.chmod(0o600)
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")
    found = told(home, capsys, "archive", "verify", uri, code=4)
    assert [problem.split(":")[0] for problem in found["problems"]] == ["events/segment-000001.jsonl.zst was changed"]
    for call in (("restore", uri), ("replay", "--from-archive", uri)):
        refused = new_home.here(capsys, *call)
        assert refused.code == 4
        assert "events/segment-000001.jsonl.zst was changed" in refused.stderr
    segment.unlink()
    found = told(home, capsys, "archive", "verify", uri, code=4)
    assert found["problems"] == ["events/segment-000001.jsonl.zst is missing from the archive"]
    other = home.here(capsys, "archive", "show", uri, "--trusted", "ab" * 32)
    assert other.code == 4
    assert f"not by {'ab' * 32}" in other.stderr


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (["archive"], 0, "Archive executions"),
        (["archive", "17"], 2, "there is no execution 17"),
        (["archive", "x"], 2, "'x' is not an execution id"),
        (["archive", "--all", "17"], 2, "name an execution, or give --all"),
        (["archive", "17", "--older-than", "7d"], 2, "--older-than goes with --all"),
        (["archive", "--all", "--older-than", "soon"], 2, "soon"),
        (["archive", "verify", "/nowhere"], 2, "there is no directory /nowhere"),
        (["archive", "verify", "ftp://nowhere"], 2, "there is no object store for ftp"),
        (["archive", "show", "/tmp", "--trusted", "abc"], 2, "64 characters"),
        (["restore", "/nowhere"], 2, "there is no directory /nowhere"),
        (["replay"], 2, "name an execution"),
        (["replay", "--from-archive", "/nowhere", "--no-snapshots"], 2, "are for a ledger, not for a bundle"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_what_cannot_be_done_says_why(two_logs: Home, capsys: Any, call: list[str], code: int, said: str) -> None:
    result = two_logs.here(capsys, *call) if call != ["archive"] else two_logs.run("archive", "--help")
    assert result.code == code, result
    assert said in result.stderr + result.stdout


def test_a_directory_without_a_manifest_is_no_archive(two_logs: Home, tmp_path: Path, capsys: Any) -> None:
    result = two_logs.here(capsys, "archive", "verify", str(tmp_path))
    assert result.code == 2
    assert "there is no manifest.json" in result.stderr


def test_what_ran_is_archived_when_it_has_ended(new_home: Home) -> None:
    run = new_home.json("run", SUB_PLAYBOOK, env=ON_COMPLETION)
    shown = new_home.json("archive", "show", run["archive"])
    assert shown["execution_id"] == run["execution_id"]
    assert len(shown["executions"]) == 4, "with the three that it has called"
    assert new_home.json("archive", "--all")["archived"] == []


def test_a_run_does_not_fail_with_its_archive_and_a_later_one_finishes_it(new_home: Home, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    run = new_home.run(
        "run", SUB_PLAYBOOK, "--json", env=ON_COMPLETION | {"NOETL_ARCHIVE__URL": f"{blocked.as_uri()}/x"}
    )
    assert run.code == 0, run
    assert run.document["archive"] is None
    assert "it is not archived: " in run.stderr
    assert f"noetl archive {run.document['execution_id']} tries again" in run.stderr
    (made,) = new_home.json("archive", "--all")["archived"]
    assert made["execution_id"] == run.document["execution_id"]


def test_killed_in_the_middle_the_next_one_finishes_it(home: Home, capsys: Any) -> None:
    for _ in range(2):
        process = home.start("archive", FRAMES)
        _wait_for_more(home.path / "archive")
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    uri = told(home, capsys, "archive", FRAMES)["uri"]
    assert told(home, capsys, "archive", "verify", uri)["ok"]
    (manifest,) = (home.path / "archive").rglob("manifest.json")
    assert manifest.parent == Path(uri.removeprefix("file://"))


def _wait_for_more(directory: Path) -> None:
    """Until one more object is there than was, or none comes any more."""
    before = sum(1 for _ in directory.rglob("*"))
    deadline = time.monotonic() + DEADLINE
    while sum(1 for _ in directory.rglob("*")) <= before and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_bucket_is_as_good_as_a_directory(home: Home, new_home: Home, moto_bucket: Bucket) -> None:
    env = {
        "NOETL_ARCHIVE__URL": f"{moto_bucket.url}/cold",
        "NOETL_ARCHIVE__OPTIONS": f"endpoint={moto_bucket.options['endpoint']}, region=us-east-1, retries=1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    made = home.json("archive", FRAMES, env=env)
    assert made["uri"].startswith(f"{moto_bucket.url}/cold/noetl/env=")
    assert new_home.json("archive", "verify", made["uri"], env=env)["ok"]
    assert new_home.json("restore", made["uri"], env=env)["written"] == made["events"]
    live, other = (one.json("replay", FRAMES, env=env) for one in (home, new_home))
    assert other["projection_checksums"] == live["projection_checksums"]
