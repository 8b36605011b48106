"""The shapes that scripts rely on, and what a person sees."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.kernel.event import Envelope
from tests.e2e.cli import COMMAND, CORPUS, FRAMES, ORDERS, ORDERS_LOG, Home

ESCAPE = "\x1b["
COMMANDS = ("list", "events", "replay", "diff", "verify", "import", "export", "config")
SURFACES = {"execution", "stages", "frames", "commands", "business_objects", "loops"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
CALLS = [
    ["list"],
    ["events", ORDERS],
    ["replay", ORDERS],
    ["replay", ORDERS, "--resolve-payloads", "--degraded"],
    ["diff", ORDERS, "--from", "0"],
    ["verify", ORDERS],
    ["verify", "--all"],
    ["import", str(ORDERS_LOG)],
    ["export", ORDERS, "--out", "/dev/null"],
    ["config", "view"],
]


def ids_of(value: Any, name: str = "") -> Iterator[Any]:
    """Every value under a name that says it is an id."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ids_of(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from ids_of(item)
    elif name.endswith("_id"):
        yield value


# --- One document -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_json_is_one_document_and_nothing_else(call: list[str], home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    result = home.here(capsys, *call, "--json")
    assert result.code == 0
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    assert result.stdout.endswith("}\n")
    assert all(isinstance(value, str | None) for value in ids_of(result.document))


def test_list(two_logs: Home) -> None:
    document = two_logs.json("list")
    assert document["next_cursor"] is None
    assert [row["execution_id"] for row in document["executions"]] == [ORDERS, FRAMES], "newest first"
    row = document["executions"][0]
    assert (row["path"], row["status"], row["event_count"], row["tenant_id"]) == (
        "sales/orders_daily", "COMPLETED", 87, "acme"
    )  # fmt: skip
    assert TIME.fullmatch(row["started_at"])
    assert TIME.fullmatch(row["ended_at"])


def test_list_of_nothing(new_home: Home) -> None:
    assert new_home.json("list") == {"executions": [], "next_cursor": None}
    assert not new_home.path.exists()


def test_list_filters(every_log: Home) -> None:
    for status in ("FAILED", "CANCELLED", "COMPLETED"):
        found = every_log.json("list", "--status", status)["executions"]
        assert found
        assert {row["status"] for row in found} == {status}
    [row] = every_log.json("list", "--path", "sales/orders_daily")["executions"]
    assert row["execution_id"] == ORDERS
    assert every_log.json("list", "--tenant", "nobody")["executions"] == []


def test_events(two_logs: Home) -> None:
    document = two_logs.json("events", ORDERS, "--limit", "1000")
    assert document["next_cursor"] is None
    lines = [json.loads(line) for line in ORDERS_LOG.read_bytes().splitlines()]
    assert [event["event_id"] for event in document["events"]] == [str(line["event_id"]) for line in lines]
    for event, line in zip(document["events"], lines, strict=True):
        assert set(event) == set(line) | {"position"}
        assert set(line) <= set(Envelope.__struct_fields__)
        assert (event["envelope_checksum"], event.get("chain_hash")) == (
            line["envelope_checksum"],
            line.get("chain_hash"),
        )
        assert TIME.fullmatch(event["event_time"])


def test_events_of_some_types(two_logs: Home) -> None:
    call = ("events", ORDERS, "--type", "frame.committed", "--type", "stage.closed")
    found = two_logs.json(*call)["events"]
    assert {event["event_type"] for event in found} == {"frame.committed", "stage.closed"}
    assert len(found) == 7
    first = two_logs.json(*call, "--limit", "3")
    rest = two_logs.json(*call, "--cursor", first["next_cursor"])
    assert first["events"] + rest["events"] == found


def test_replay(two_logs: Home) -> None:
    document = two_logs.json("replay", ORDERS)
    expected = {"execution_id", "status", "event_count", "last_event_id", "projection_checksums",
                "upcaster_registry_digest", "snapshot", "checksum"}  # fmt: skip
    assert set(document) >= expected | (SURFACES - {"execution"})
    assert (document["execution_id"], document["status"], document["event_count"]) == (ORDERS, "COMPLETED", 87)
    assert set(document["projection_checksums"]) == SURFACES
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in document["projection_checksums"].values())
    assert document["snapshot"] == {
        "used": False,
        "position": None,
        "events_folded": 87,
        "rejected": [],
        "why_not": "there is none yet",
    }
    assert [len(document[name]) for name in ("stages", "frames", "commands", "business_objects", "loops")] == [
        1,
        6,
        8,
        3,
        1,
    ]


def test_replay_with_payloads_fails_if_one_is_missing(two_logs: Home) -> None:
    done = two_logs.run("replay", ORDERS, "--resolve-payloads", "--json")
    assert (done.code, done.document["payloads"]["missing_or_damaged"]) == (4, 10)
    assert "noetl repair may restore it, --degraded goes without" in done.stderr
    shown = two_logs.run("replay", ORDERS, "--resolve-payloads")
    assert (shown.code, shown.stdout.count(": missing\n")) == (4, 10)
    misused = two_logs.run("replay", ORDERS, "--degraded")
    assert (misused.code, "--resolve-payloads" in misused.stderr) == (2, True)


def test_replay_with_payloads_as_far_as_there_are_any(two_logs: Home) -> None:
    payloads = two_logs.json("replay", ORDERS, "--resolve-payloads", "--degraded")["payloads"]
    assert (payloads["payloads"], payloads["missing_or_damaged"]) == (10, 10)
    assert {summary["error"] for summary in payloads["summaries"]} == {"missing"}
    assert set(payloads["summaries"][0]) == {"uri", "sha256", "bytes", "rows", "media_type", "error"}


@pytest.mark.parametrize(
    ("moment", "events"),
    [
        (["--at-position", "1"], 1),
        (["--at-position", "40"], 40),
        (["--at-position", "126"], 87),
        (["--at-event", "287011192575127552"], 43),
        (["--at-time", "2026-03-03T00:00:00.040000Z"], 2),
        (["--at-time", "2026-03-03T01:00:00.080000+01:00"], 3),
        (["--at-time", "2020-01-01"], 0),
    ],
)
def test_replay_as_of_a_moment(moment: list[str], events: int, two_logs: Home) -> None:
    assert two_logs.json("replay", ORDERS, *moment)["event_count"] == events


def test_diff(two_logs: Home) -> None:
    document = two_logs.json("diff", ORDERS, "--from", "40", "--to", "50")
    assert (document["execution_id"], document["from"], document["to"]) == (ORDERS, "40", "50")
    assert set(document["changes"]) == SURFACES
    [execution] = document["changes"]["execution"]
    assert (execution["row"], execution["kind"]) == ("root", "changed")
    assert execution["fields"]["event_count"] == {"before": 40, "after": 50}
    assert all(isinstance(side, str) for side in execution["fields"]["last_event_id"].values())
    assert [change["kind"] for change in document["changes"]["frames"]] == ["added"] * 6
    assert two_logs.json("diff", ORDERS, "--from", "50", "--to", "50")["changes"] == {name: [] for name in SURFACES}


def test_diff_of_everything_is_the_state(two_logs: Home) -> None:
    changes = two_logs.json("diff", ORDERS, "--from", "0")["changes"]
    state = two_logs.json("replay", ORDERS)
    frames = [{name: field["after"] for name, field in change["fields"].items()} for change in changes["frames"]]
    assert sorted(frames, key=lambda row: row["frame_id"]) == state["frames"]


def test_verify(two_logs: Home) -> None:
    document = two_logs.json("verify", ORDERS)
    shape = {name: document[name] for name in ("execution_id", "events", "chain", "keyed", "first_bad_event", "parity")}
    assert shape == {
        "execution_id": ORDERS, "events": 87, "chain": "ok", "keyed": True, "first_bad_event": None, "parity": True
    }  # fmt: skip
    assert (
        document["live_bundle"]
        == document["replayed_bundle"]
        == two_logs.json("replay", ORDERS)["projection_checksums"]
    )


def test_verify_everything(every_log: Home) -> None:
    document = every_log.json("verify", "--all")
    logs = [ORDERS_LOG, *CORPUS.glob("*.jsonl")]
    assert document["ok"] is True
    assert document["verified"] == len(logs)
    assert document["events"] == sum(len(log.read_bytes().splitlines()) for log in logs)
    assert document["ledger"]["problems"] == []
    assert {result["chain"] for result in document["results"]} == {"ok"}


def test_import(new_home: Home) -> None:
    first = new_home.json("import", ORDERS_LOG)
    assert first == {
        "file": str(ORDERS_LOG), "imported": 87, "present": 0, "roots": [f"execution/{ORDERS}"], "position": 87
    }  # fmt: skip


def test_export(two_logs: Home, tmp_path: Path) -> None:
    document = two_logs.json("export", ORDERS, "--out", tmp_path / "orders.jsonl")
    assert (document["execution_id"], document["events"], document["format"]) == (ORDERS, 87, "jsonl")
    assert document["bytes"] == ORDERS_LOG.stat().st_size


def test_config(home: Home) -> None:
    (home.path.parent / "noetl.toml").write_text("[snapshots]\nevery = 5\n", encoding="utf-8")
    document = home.json("config", "view", "--tenant", "acme", env={"NOETL_LEDGER__BUSY_TIMEOUT": "3s"})
    assert document["home"] == str(home.path)
    settings = document["settings"]
    assert settings["ledger.busy_timeout"] == {"value": 3.0, "source": "NOETL_LEDGER__BUSY_TIMEOUT"}
    assert settings["snapshots.every"]["value"] == 5
    assert settings["snapshots.every"]["source"].endswith("noetl.toml:2")
    assert settings["tenant.id"]["value"] == "acme"
    assert settings["tenant.project"]["source"] == "default"


def test_the_home_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "noetl.toml").touch()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    environment = Home(tmp_path).environment()
    del environment["NOETL_HOME"]
    done = subprocess.run(
        [*COMMAND, "config", "view", "--json"], env=environment, cwd=below, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["home"] == str(tmp_path / ".noetl")


# --- Pages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 86, 87])
def test_pages_of_events_cover_everything_once(limit: int, two_logs: Home, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[int] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = two_logs.here(capsys, "events", ORDERS, "--json", "--limit", str(limit), "--cursor", cursor).document
        assert len(page["events"]) <= limit
        found += [event["position"] for event in page["events"]]
        cursor = page["next_cursor"]
    assert found == list(range(1, 88))


@pytest.mark.parametrize("limit", [1, 4])
def test_pages_of_executions_cover_everything_once(
    limit: int, every_log: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = every_log.here(capsys, "list", "--json").document["executions"]
    logs = [ORDERS_LOG, *CORPUS.glob("*.jsonl")]
    assert len(everything) == sum('"stream_id":"execution/' in log.read_text(encoding="utf-8") for log in logs)
    found: list[Any] = []
    more: list[str] = []
    while True:
        page = every_log.here(capsys, "list", "--json", "--limit", str(limit), *more).document
        found += page["executions"]
        if page["next_cursor"] is None:
            break
        more = ["--cursor", page["next_cursor"]]
    assert found == everything


def test_a_page_says_how_to_go_on(two_logs: Home) -> None:
    result = two_logs.run("events", ORDERS, "--limit", "5")
    assert f"noetl events {ORDERS} --cursor 5" in result.stderr
    assert "noetl list --cursor " in two_logs.run("list", "--limit", "1").stderr


# --- Following --------------------------------------------------------------------------------------------


def lines_until(process: subprocess.Popen[bytes], count: int) -> list[dict[str, Any]]:
    """So many lines of a running process, as they come."""
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def test_following_gives_what_is_there_and_what_arrives(new_home: Home, tmp_path: Path) -> None:
    lines = ORDERS_LOG.read_bytes().splitlines(keepends=True)
    begun, whole = tmp_path / "begun.jsonl", tmp_path / "whole.jsonl"
    begun.write_bytes(b"".join(lines[:40]))
    whole.write_bytes(b"".join(lines))
    new_home.json("import", begun)
    process = new_home.start("events", ORDERS, "--follow", "--json")
    try:
        assert [event["position"] for event in lines_until(process, 40)] == list(range(1, 41))
        new_home.json("import", CORPUS / "hello.jsonl")
        new_home.json("import", whole)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    arrived = [json.loads(line) for line in stdout.splitlines()]
    assert (process.returncode, stderr) == (0, b"")
    assert [event["event_id"] for event in arrived] == [str(json.loads(line)["event_id"]) for line in lines[40:]]
    assert arrived[-1]["event_type"] == "playbook.completed"


def test_following_an_execution_that_has_ended_ends(two_logs: Home) -> None:
    result = two_logs.run("events", ORDERS, "--follow", "--json")
    assert result.code == 0
    assert len(result.stdout.splitlines()) == 87


def test_following_from_a_cursor_shows_some_types(two_logs: Home) -> None:
    result = two_logs.run("events", ORDERS, "--follow", "--json", "--cursor", "60", "--type", "frame.committed")
    assert [json.loads(line)["position"] for line in result.stdout.splitlines()] == [62, 66, 67]


def test_an_interrupted_follower_says_so_and_leaves(new_home: Home, tmp_path: Path) -> None:
    begun = tmp_path / "begun.jsonl"
    begun.write_bytes(b"".join(ORDERS_LOG.read_bytes().splitlines(keepends=True)[:3]))
    new_home.json("import", begun)
    process = new_home.start("events", ORDERS, "--follow", "--json")
    lines_until(process, 3)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr.decode().strip() == "interrupted"


# --- For eyes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_pipe_gets_no_escape_codes(call: list[str], home: Home) -> None:
    result = home.run(*call)
    assert result.code == 0
    assert ESCAPE not in result.stdout + result.stderr
    assert result.stdout or result.stderr


def on_terminal(home: Home, *call: str, **env: str) -> tuple[int, str]:
    """A call whose streams are a terminal of 200 columns."""
    main, side = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "200", **env}
    process = home.start(*call, env=environment, stdin=side, stdout=side, stderr=side)
    os.close(side)
    shown = b""
    with os.fdopen(main, "rb", buffering=0) as terminal:
        while select.select([terminal], [], [], 30)[0]:
            try:
                data = terminal.read(65536)
            except OSError:  # how a pty says that the other side has gone
                break
            if not data:
                break
            shown += data
    return process.wait(30), shown.decode()


@pytest.mark.parametrize("call", [["list"], ["events", ORDERS], ["replay", ORDERS], ["verify", "--all"]], ids=" ".join)
def test_a_terminal_gets_colours(call: list[str], two_logs: Home) -> None:
    code, shown = on_terminal(two_logs, *call)
    assert code == 0
    assert ESCAPE in shown


@pytest.mark.parametrize(
    "call", [["list"], ["replay", ORDERS], ["verify", "--all"], ["diff", ORDERS, "--from", "0"]], ids=" ".join
)
def test_a_terminal_without_colours(call: list[str], two_logs: Home) -> None:
    code, shown = on_terminal(two_logs, *call, NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[(?:\d+;)*(?:3[0-9]|9[0-7])m", shown)


def test_a_terminal_gets_indented_json(two_logs: Home) -> None:
    code, shown = on_terminal(two_logs, "list", "--json")
    assert code == 0
    assert json.loads(shown) == two_logs.json("list")
    assert shown.count("\n") > 10


def test_ids_are_never_cut(two_logs: Home) -> None:
    _, shown = on_terminal(two_logs, "list", COLUMNS="60")
    assert ORDERS in shown
    assert FRAMES in shown


def test_text_in_events_cannot_take_over_the_terminal(new_home: Home, tmp_path: Path) -> None:
    """A name is data: neither markup nor control characters of it reach the terminal."""
    new_home.json("import", ORDERS_LOG)
    with new_home.sql() as connection:
        connection.execute(
            "UPDATE projection SET row = json_set(row, '$.path', ?) WHERE surface = 'execution'",
            ("[red]x[/red]\x1b]0;owned\x07",),
        )
    code, shown = on_terminal(new_home, "list", NO_COLOR="1")
    assert code == 0
    assert "[red]x[/red]" in shown
    assert "\x1b]0;" not in shown


@pytest.mark.parametrize(
    "call", [["list"], ["events", ORDERS, "--json"], ["export", ORDERS], ["verify", "--all"]], ids=" ".join
)
def test_a_reader_that_has_gone_is_no_error(call: list[str], two_logs: Home) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = two_logs.run(*call, stdout=writing)
    finally:
        os.close(writing)
    assert (result.code, result.stderr) == (0, "")


def test_the_first_line_of_a_list(two_logs: Home) -> None:
    command = " ".join(COMMAND)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} list | head -1"],
        env=two_logs.environment(),
        cwd=two_logs.path.parent,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


# --- Help -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*COMMANDS[:-1], "config view"])
def test_help_has_an_example(command: str, two_logs: Home) -> None:
    result = two_logs.run(*command.split(), "--help")
    assert result.code == 0
    assert "Example: " in result.stdout
    assert f"noetl {command}" in result.stdout.partition("Example: ")[2]
    for option in ("--home", "--json"):
        assert option in result.stdout


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_command_and_the_exit_codes(option: str, two_logs: Home) -> None:
    result = two_logs.run(option)
    assert result.code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)
    assert "Exit codes: 0 ok" in result.stdout


def test_no_command_shows_the_help(two_logs: Home) -> None:
    result = two_logs.run()
    assert result.code == 2
    assert "Commands:" in result.stderr


def test_version(two_logs: Home) -> None:
    result = two_logs.run("--version")
    assert re.fullmatch(r"noetl \d+\.\d+\.\d+\n", result.stdout)
