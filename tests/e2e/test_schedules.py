"""Playbooks by the clock, as users have them: with the command line at home, with a server, and afar."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import Home
from tests.e2e.serving import Server, serving

DAILY = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: daily, path: reports/daily}
workload: {region: south}
workflow:
  - step: start
    tool: {kind: noop}
"""
ADD = ("schedule", "add", "daily", "--playbook", "reports/daily")
WEEKDAYS = ("--cron", "0 6 * * 1-5", "--timezone", "Europe/Paris")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    place = tmp_path_factory.mktemp("schedules")
    made = Home(place / "home")
    (place / "daily.yaml").write_text(DAILY, encoding="utf-8")
    made.json("register", "daily.yaml")
    return made


@pytest.fixture(scope="module")
def server(home: Home) -> Iterator[Server]:
    with serving(home) as started:
        yield started


def eventually(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)
    return found


class TestAtHome:
    """Without a server: a schedule is kept, and nothing runs."""

    def test_a_home_without_a_ledger_has_none_and_stays_without(self, tmp_path: Path) -> None:
        empty = Home(tmp_path / "home")
        assert empty.json("schedule", "list") == {"schedules": [], "next_cursor": None}
        assert not empty.ledger.exists()

    def test_from_its_beginning_to_its_end(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        made = home.here(capsys, *ADD, *WEEKDAYS, "--payload", '{"region": "north"}', "--missed", "last", "--json")
        assert made.code == 0, made
        expected = {
            "name": "daily", "timezone": "Europe/Paris", "payload": {"region": "north"}, "missed": "last",
            "overlap": "allow", "status": "ACTIVE",
        }  # fmt: skip
        assert {name: made.document[name] for name in expected} == expected
        listed = home.here(capsys, "schedule", "list")
        assert "reports/daily" in listed.stdout
        assert "Europe/Paris" in home.here(capsys, "schedule", "show", "daily").stdout
        paused = home.here(capsys, "schedule", "pause", "daily")
        assert "daily is paused (0 6 * * 1-5, Europe/Paris)" in paused.stderr
        assert "daily runs next at" in home.here(capsys, "schedule", "resume", "daily").stderr
        run = home.here(capsys, "schedule", "run", "daily")
        assert run.code == 3
        assert "no server that could run 'daily'" in run.stderr
        assert "noetl server start" in run.stderr
        assert home.here(capsys, "schedule", "remove", "daily").code == 0
        shown = home.here(capsys, "schedule", "show", "daily")
        assert (shown.code, "there is no schedule 'daily'" in shown.stderr) == (2, True)

    @pytest.mark.parametrize(
        ("options", "problem", "fix"),
        [
            (("--cron", "61 6 * * *"), "cron '61 6 * * *': the minute is not right", "such as '0 6 * * 1-5'"),
            (("--cron", "0 6 * * *", "--timezone", "Europe/Pari"), "no time zone 'Europe/Pari'", "'Europe/Paris'?"),
            (("--cron", "0 6 * * *", "--playbook", "reports/dayly"), "no 'reports/dayly'", "noetl register FILE"),
            (("--cron", "0 6 * * *", "--version", "9"), "9", "fix:"),
            (("--cron", "0 6 * * *", "--payload", "[1]"), "--payload is not a JSON object", ""),
            (("--cron", "0 6 * * *", "--payload", "@nowhere.json"), "cannot read nowhere.json", ""),
        ],
    )
    def test_what_cannot_be_right_is_refused_with_a_fix(
        self, home: Home, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], problem: str, fix: str
    ) -> None:
        refused = home.here(capsys, *ADD, *options)
        assert refused.code == 2
        assert problem in refused.stderr
        assert fix in refused.stderr
        assert home.here(capsys, "schedule", "list", "--json").document["schedules"] == []

    def test_a_name_that_is_taken_is_bad_usage(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        assert home.here(capsys, *ADD, *WEEKDAYS).code == 0
        taken = home.here(capsys, *ADD, *WEEKDAYS)
        assert taken.code == 2
        assert "there is a schedule 'daily' already" in taken.stderr
        assert home.here(capsys, *ADD, "--cron", "0 7 * * *", "--replace").code == 0
        assert home.here(capsys, "schedule", "remove", "daily").code == 0


def test_a_server_runs_what_is_due_and_what_it_is_asked_to(
    home: Home, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert home.here(capsys, *ADD, "--cron", "* * * * * *", "--missed", "all").code == 0
    eventually(lambda: len(_fired(home, capsys)) >= 3)
    assert home.here(capsys, "schedule", "pause", "daily").code == 0
    by_hand = home.here(capsys, "schedule", "run", "daily", "--json").document["execution_id"]
    shown = eventually(lambda: _ended(home, capsys))
    assert shown["last_run"]["execution_id"] == by_hand
    fired = [event["payload"] for event in _fired(home, capsys)]
    times = [said["fire_time"] for said in fired if "by_hand" not in said]
    assert len(set(times)) == len(times)
    assert len({said["execution_id"] for said in fired}) == len(fired)
    listed = server.get("/executions", page_size=500)
    assert {one["execution_id"] for one in listed["executions"]} == {said["execution_id"] for said in fired}


def test_a_context_reaches_the_schedules_of_its_server(home: Home, server: Server, tmp_path: Path) -> None:
    user = Home(tmp_path / "user")
    assert user.run("context", "add", "prod", "--url", server.url).code == 0
    made = user.json("schedule", "add", "afar", "--playbook", "reports/daily", *WEEKDAYS, "--context", "prod")
    assert made["next_run"] is not None
    started = user.json("schedule", "run", "afar", "--context", "prod")
    server.ended(started["execution_id"])
    (shown,) = user.json("schedule", "list", "--context", "prod", "--limit", "1")["schedules"]
    assert (shown["name"], shown["last_run"]["status"]) == ("afar", "COMPLETED")
    assert user.json("schedule", "remove", "afar", "--context", "prod") == {"name": "afar", "removed": True}


def _fired(home: Home, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    said = home.here(capsys, "events", "tenant/default", "--type", "schedule.fired", "--limit", "1000", "--json")
    found: list[dict[str, Any]] = json.loads(said.stdout)["events"] if said.code == 0 else []
    return found


def _ended(home: Home, capsys: pytest.CaptureFixture[str]) -> dict[str, Any] | None:
    shown = home.here(capsys, "schedule", "show", "daily", "--json").document
    last = shown["last_run"] or {}
    return shown if last.get("status") == "COMPLETED" else None
