"""Executions leave the ledger by the command line: whole or not at all, and everything is answered as before."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.e2e.cli import ORDERS_LOG, Home

CORPUS = ORDERS_LOG.parents[2] / "tests" / "golden" / "corpus"
PARENT, CHILD = "286814896128028672", "286814896631345155"
TENANT = ("--tenant", "acme")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Three executions and one that another has called, all archived."""
    home = Home(tmp_path / "home")
    for log in (ORDERS_LOG, CORPUS / "calls_parent.jsonl", CORPUS / "calls_child.jsonl", CORPUS / "hello.jsonl"):
        home.json("import", log)
    home.json("archive", "--all", *TENANT)
    return home


def test_killed_anywhere_an_execution_is_there_or_it_is_gone(home: Home) -> None:
    before = {one: home.json("replay", one, *TENANT)["checksum"] for one in (PARENT, CHILD)}
    for seconds in (0.25, 0.45):
        with home.start("retention", "--apply", *TENANT) as process:
            time.sleep(seconds)  # somewhere on its way, wherever that is on this machine
            process.send_signal(signal.SIGKILL)
        assert home.run("verify", "--all").code == 0
    done = home.json("retention", "--apply", *TENANT)
    assert [one["reason"] for one in done["executions"] if not one["gone"]] == []
    verified = home.json("verify", "--all")
    assert (verified["ok"], verified["ledger"]["archived"]) == (True, 4)
    assert {one: home.json("replay", one, *TENANT)["checksum"] for one in before} == before
    refused = home.run("import", CORPUS / "hello.jsonl")
    assert (refused.code, "noetl restore" in refused.stderr) == (2, True)


def test_a_hold_keeps_it_and_a_restore_brings_it_back(home: Home) -> None:
    home.json("hold", "add", CHILD, "--reason", "case 4711", *TENANT)
    assert [one["execution_id"] for one in home.json("hold", "list", *TENANT)["holds"]] == [CHILD]
    swept = home.json("retention", "--apply", *TENANT)
    kept = {one["execution_id"]: one["reason"] for one in swept["executions"] if not one["gone"]}
    assert kept == {PARENT: "held"}
    home.json("hold", "remove", CHILD, "--reason", "closed", *TENANT)
    assert home.run("hold", "remove", CHILD, "--reason", "closed", *TENANT).code == 2
    assert home.json("retention", "--apply", *TENANT)["gone"]["executions"] == 2
    archive = home.json("verify", CHILD, *TENANT)["archive"]
    assert home.run("restore", archive).code == 0
    assert home.json("verify", "--all")["ledger"]["archived"] == 2
    assert home.json("retention", *TENANT)["executions"][0]["may_go"]
    assert home.run("retention", "--apply", "--dry-run").code == 2
