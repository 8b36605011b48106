"""The same log gives the same bytes and the same checksums: wherever it has been, and however it is read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import CORPUS, FRAMES, ORDERS, ORDERS_LOG, PROJECT_ROOT, Home

PINNED: dict[str, Any] = json.loads((PROJECT_ROOT / "tests/golden/expected.json").read_bytes())
LOGS = [ORDERS_LOG, *sorted(CORPUS.glob("*.jsonl"))]
names = pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)


def root_of(log: Path) -> str:
    """The stream that a log's events belong to."""
    stream = str(json.loads(log.read_bytes().splitlines()[0])["stream_id"])
    return "/".join(stream.split("/")[:2]) if stream.startswith("execution/") else stream


def pinned(log: Path) -> dict[str, Any]:
    found: dict[str, Any] = PINNED[str(log.relative_to(PROJECT_ROOT))]
    return found


@names
def test_a_replay_gives_the_pinned_checksums(log: Path, every_log: Home, capsys: pytest.CaptureFixture[str]) -> None:
    state = every_log.here(capsys, "replay", root_of(log), "--json").document
    assert state["projection_checksums"] == pinned(log)["bundle"]
    assert state["checksum"] == pinned(log)["state"]
    assert state["event_count"] == pinned(log)["events"]


@names
def test_a_log_comes_back_byte_for_byte(
    log: Path, every_log: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "back.jsonl"
    every_log.here(capsys, "export", root_of(log), "--out", file)
    assert file.read_bytes() == log.read_bytes()


def test_standard_output_is_the_log_too(two_logs: Home) -> None:
    assert two_logs.run("export", ORDERS).stdout.encode() == ORDERS_LOG.read_bytes()


@names
def test_a_journey_through_feather_changes_nothing(
    log: Path, every_log: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Out as Feather, into a second home, out as JSON lines, into a third, and back as Feather."""
    root, second, third = root_of(log), Home(tmp_path / "second"), Home(tmp_path / "third")
    there, back, again = tmp_path / "there.feather", tmp_path / "back.jsonl", tmp_path / "again.feather"
    every_log.here(capsys, "export", root, "--format", "feather", "--out", there)
    second.here(capsys, "import", there)
    second.here(capsys, "export", root, "--out", back)
    third.here(capsys, "import", back)
    third.here(capsys, "export", root, "--format", "feather", "--out", again)
    assert back.read_bytes() == log.read_bytes()
    assert again.read_bytes() == there.read_bytes()
    for home in (second, third):
        state = home.here(capsys, "replay", root, "--json").document
        assert state["projection_checksums"] == pinned(log)["bundle"]
        assert home.here(capsys, "verify", "--all").code == 0


def test_importing_twice_is_harmless(home: Home, tmp_path: Path) -> None:
    before = home.json("replay", ORDERS)
    feather = tmp_path / "orders.feather"
    home.json("export", ORDERS, "--format", "feather", "--out", feather)
    for file in (ORDERS_LOG, feather):
        again = home.json("import", file)
        assert (again["imported"], again["present"], again["position"]) == (0, 87, 126)
    assert home.json("replay", ORDERS) == before
    assert home.run("verify", "--all").code == 0


def test_a_log_that_has_grown_adds_what_is_new(
    new_home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ORDERS_LOG.read_bytes().splitlines(keepends=True)
    for count in (1, 40, 41, 60, 87):
        part = tmp_path / f"{count}.jsonl"
        part.write_bytes(b"".join(lines[:count]))
        assert new_home.here(capsys, "import", part).code == 0
        assert new_home.here(capsys, "verify", "--all").code == 0
    assert new_home.json("replay", ORDERS)["checksum"] == pinned(ORDERS_LOG)["state"]
    assert new_home.run("export", ORDERS).stdout.encode() == ORDERS_LOG.read_bytes()


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_imports_does_not_matter(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Home(tmp_path / "home")
    for log in random.Random(seed).sample(LOGS, len(LOGS)):
        assert home.here(capsys, "import", log).code == 0
    for log in LOGS:
        assert home.here(capsys, "replay", root_of(log), "--json").document["checksum"] == pinned(log)["state"]
    assert home.here(capsys, "verify", "--all").code == 0


def test_many_logs_in_one_file(new_home: Home, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"".join(log.read_bytes() for log in LOGS))
    imported = new_home.json("import", file)
    assert imported["roots"] == sorted(map(root_of, LOGS))
    assert new_home.json("replay", FRAMES)["checksum"] == pinned(CORPUS / "frames.jsonl")["state"]


def test_interleaved_logs_in_one_file(new_home: Home, tmp_path: Path) -> None:
    """Events of many executions in the order of one ledger, as a shared log would have them."""
    lines = [line for log in LOGS for line in log.read_bytes().splitlines(keepends=True)]
    order = [list(log.read_bytes().splitlines(keepends=True)) for log in LOGS]
    dice, mixed = random.Random(5), []
    while any(order):
        queue = dice.choice([lines_left for lines_left in order if lines_left])
        mixed.append(queue.pop(0))
    assert sorted(mixed) == sorted(lines)
    file = tmp_path / "mixed.jsonl"
    file.write_bytes(b"".join(mixed))
    new_home.json("import", file)
    for log in (ORDERS_LOG, CORPUS / "frames.jsonl", CORPUS / "loop_stalled.jsonl"):
        assert new_home.json("replay", root_of(log))["checksum"] == pinned(log)["state"]
    assert new_home.run("verify", "--all").code == 0


# --- Snapshots --------------------------------------------------------------------------------------------

EVERY_TEN = {"NOETL_SNAPSHOTS__EVERY": "10", "NOETL_SNAPSHOTS__KEEP": "10"}


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home that took snapshots of the orders as they grew. Not to be changed."""
    folder = tmp_path_factory.mktemp("snapshots")
    home = Home(folder / "home")
    lines = ORDERS_LOG.read_bytes().splitlines(keepends=True)
    for count in (15, 33, 62, 87):
        part = folder / f"{count}.jsonl"
        part.write_bytes(b"".join(lines[:count]))
        home.json("import", part, env=EVERY_TEN)
    return home


@pytest.fixture
def snapped(snapshots: Home, tmp_path: Path) -> Home:
    return snapshots.copy(tmp_path / "home")


def test_a_snapshot_gives_the_same_state(snapshots: Home) -> None:
    short, full = snapshots.json("replay", ORDERS), snapshots.json("replay", ORDERS, "--no-snapshots")
    assert short["snapshot"] == {"used": True, "position": 87, "events_folded": 0, "rejected": [], "why_not": None}
    assert full["snapshot"] == {
        "used": False, "position": None, "events_folded": 87, "rejected": [], "why_not": "none was asked for"
    }  # fmt: skip
    assert {**short, "snapshot": None} == {**full, "snapshot": None}
    assert short["checksum"] == pinned(ORDERS_LOG)["state"]


@pytest.mark.parametrize("position", [1, 14, 15, 16, 40, 62, 63, 80, 86])
def test_every_moment_is_the_same_with_and_without_snapshots(
    position: int, snapshots: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--at-position", str(position), "--json")
    short = snapshots.here(capsys, "replay", ORDERS, *at).document
    full = snapshots.here(capsys, "replay", ORDERS, *at, "--no-snapshots").document
    assert short["snapshot"]["used"] == (position >= 15)
    assert {**short, "snapshot": None} == {**full, "snapshot": None}


def test_a_time_before_a_snapshots_last_event_does_not_use_it(snapshots: Home) -> None:
    moment = ("--at-time", "2026-03-03T00:00:00.500000Z")
    short, full = snapshots.json("replay", ORDERS, *moment), snapshots.json("replay", ORDERS, *moment, "--no-snapshots")
    assert {**short, "snapshot": None} == {**full, "snapshot": None}
    assert short["snapshot"]["position"] == 15 or not short["snapshot"]["used"]
    assert "it covers events after the time asked for" in {item["reason"] for item in short["snapshot"]["rejected"]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("checksum = '" + "0" * 64 + "'", "not sealed with this ledger's key"),
        ("mac = NULL", "not sealed with this ledger's key"),
        ("body = x'00'", "cannot be read"),
        ("body = substr(body, 1, length(body) / 2)", "cannot be read"),
        ("registry_digest = '" + "0" * 64 + "'", "made under another upcaster registry"),
        ("fold_version = 99", "made by fold version 99"),
    ],
)
def test_a_changed_snapshot_is_ignored_and_reported(change: str, reason: str, snapped: Home) -> None:
    snapped.change(f"UPDATE snapshot SET {change} WHERE position = 87")
    state = snapped.json("replay", ORDERS)
    assert (state["snapshot"]["used"], state["snapshot"]["position"]) == (True, 62)
    [rejected] = state["snapshot"]["rejected"]
    assert rejected["position"] == 87
    assert reason in rejected["reason"]
    assert state["checksum"] == pinned(ORDERS_LOG)["state"]
    assert reason in snapped.run("replay", ORDERS).stderr


def test_a_snapshot_whose_rows_were_changed_is_ignored(snapped: Home) -> None:
    """Well-formed rows of another state: only their checksum gives them away."""
    snapped.change("UPDATE snapshot SET body = (SELECT body FROM snapshot WHERE position = 62) WHERE position = 87")
    state = snapped.json("replay", ORDERS)
    assert state["snapshot"]["position"] == 62
    assert state["checksum"] == pinned(ORDERS_LOG)["state"]


def test_a_snapshot_that_claims_another_position_is_ignored(snapped: Home) -> None:
    """Its rows and its checksum fit each other, but not the events that it says it covers."""
    snapped.change("DELETE FROM snapshot WHERE position = 87", "UPDATE snapshot SET position = 80 WHERE position = 62")
    state = snapped.json("replay", ORDERS)
    assert state["checksum"] == pinned(ORDERS_LOG)["state"]
    [rejected] = state["snapshot"]["rejected"]
    assert rejected["reason"] == "not sealed with this ledger's key"


def test_a_snapshot_that_claims_another_time_is_ignored(snapped: Home) -> None:
    snapped.change("UPDATE snapshot SET last_ingest_time = '2026-03-03T00:00:00.000000Z' WHERE position = 87")
    moment = ("--at-time", "2026-03-03T00:00:00.500000Z")
    assert snapped.json("replay", ORDERS, *moment)["event_count"] == 28


def test_bad_snapshots_do_not_disturb_a_verification(snapped: Home) -> None:
    snapped.change("UPDATE snapshot SET body = x'00'")
    assert snapped.run("verify", "--all").code == 0


# --- The machine ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "machine",
    [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "12345"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"TZ": "Asia/Tokyo"},
        {"TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8", "PYTHONOPTIMIZE": "1"},
    ],
    ids=lambda machine: ",".join(f"{name}={value}" for name, value in machine.items()),
)
def test_the_machine_does_not_matter(machine: dict[str, str], new_home: Home, tmp_path: Path) -> None:
    logs = [ORDERS_LOG, CORPUS / "business_objects.jsonl", CORPUS / "legacy.jsonl"]
    for log in logs:
        new_home.json("import", log, env=machine)
    for log in logs:
        assert new_home.json("replay", root_of(log), env=machine)["checksum"] == pinned(log)["state"]
    file = tmp_path / "back.jsonl"
    new_home.json("export", ORDERS, "--out", file, env=machine)
    assert file.read_bytes() == ORDERS_LOG.read_bytes()
    at = ("--at-time", "2026-03-03T00:00:00.500000")
    assert new_home.json("replay", ORDERS, *at, env=machine)["event_count"] == 28


def test_two_homes_differ_in_nothing_but_their_keys(two_logs: Home, new_home: Home) -> None:
    """What is stored of the same imports is the same, down to the bytes of every row."""
    for log in (ORDERS_LOG, CORPUS / "frames.jsonl"):
        new_home.json("import", log)
    for sql in (
        "SELECT * FROM event ORDER BY position",
        "SELECT tenant_id, stream_id, version, event_id, count, chain_hash, sealed FROM stream_head ORDER BY 1, 2",
        "SELECT surface, root, tenant_id, row_id, row FROM projection ORDER BY 1, 2, 3, 4",
    ):
        with two_logs.sql() as one, new_home.sql() as two:
            assert one.execute(sql).fetchall() == two.execute(sql).fetchall()
    assert two_logs.key.read_bytes() != new_home.key.read_bytes()
