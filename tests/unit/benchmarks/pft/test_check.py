"""The checker finds every record of a complete run, and every way in which a run can fall short."""

from __future__ import annotations

import json

import pytest

from benchmarks.pft.check import main
from benchmarks.pft.totals import DOMAINS
from tests.services.postgres import Database

RECORD, VITAL, DETAIL = "id = 'COND-2-p1-i0'", "id = 'VITA-7-p1-i0'", "id = 'MDS-9-p1-0-00'"
DAMAGE = {
    "DELETE FROM pft_record WHERE " + RECORD: "COND-2-p1-i0 is missing",
    "DELETE FROM pft_detail WHERE " + DETAIL: "MDS-9-p1-0-00 is missing",
    "UPDATE pft_record SET value = value + 1 WHERE " + VITAL: "VITA-7-p1-i0 is (7, 1, 1, ",
    "UPDATE pft_record SET total = 2 WHERE " + VITAL: "VITA-7-p1-i0 is (7, 1, 2, ",
    "UPDATE pft_detail SET payload = '{\"value\": -1}' WHERE " + DETAIL: "MDS-9-p1-0-00 is (9, -1), not (9, ",
    "UPDATE pft_record SET id = 'COND-99-p1-i0' WHERE " + RECORD: "COND-99-p1-i0 should not be there",
    "UPDATE pft_record SET domain = 'other' WHERE " + RECORD: "nothing was expected, so nothing is proven",
    "UPDATE pft_detail SET facility = 3 WHERE " + DETAIL: "1 records are of facilities that this run does not have",
    "UPDATE pft_queue SET state = 'claimed' WHERE " + DETAIL: "1 rows of the queue are not done",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_seen_and_named(
    damage: str, copied: str, postgres: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.query(f"{damage} AND run = 'copy'")

    code = main(["--dsn", postgres.dsn, "--run", copied, "--facilities", "2", "--patients", "6"])

    printed = capsys.readouterr().out
    assert code == 4
    assert DAMAGE[damage] in printed
    assert printed.endswith("run copy: NOT COMPLETE\n")


def test_a_complete_run_is_printed_as_a_table(
    finished: str, postgres: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--dsn", postgres.dsn, "--run", finished, "--facilities", "2", "--patients", "6"]

    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["facility", "domain", "expected", "found", "missing", "unexpected", "wrong"]
    assert len(lines) == 2 + 2 * (len(DOMAINS) + 1)
    assert main([*arguments, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["counts"]) == 2 * (len(DOMAINS) + 1)


@pytest.mark.parametrize("size", [["--facilities", "0"], ["--patients", "0"]], ids=" ".join)
def test_nothing_of_nothing_is_no_proof(
    size: list[str], finished: str, postgres: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--dsn", postgres.dsn, "--run", "never", *size]) == 4
    assert "nothing is proven" in capsys.readouterr().out


def test_a_database_that_cannot_be_read_is_said_so(postgres: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dsn", postgres.dsn.replace(postgres.password, "wrong"), "--run", "x"]) == 3
    assert "the database cannot be read" in capsys.readouterr().err
