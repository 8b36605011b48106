"""What a turn must hold, and what is reported of all of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.pft.chaos import killing
from benchmarks.pft.drain import Drained
from benchmarks.pft.report import Turn, write
from benchmarks.pft.run import Conditions, Mismatch, _report, check_effects, main
from benchmarks.pft.totals import Size

COUNTED = {"distinct_records": 9, "distinct_keys": 9, "without_key": 0, "keys_used_for_two_records": 0, "requests": 11,
           "refused": 2}  # fmt: skip


@pytest.mark.parametrize("field", ["distinct_records", "distinct_keys", "without_key", "keys_used_for_two_records"])
def test_effects_must_be_exact(field: str) -> None:
    check_effects("r", COUNTED, 9, 0)
    with pytest.raises(Mismatch, match="run r: 9 effects expected"):
        check_effects("r", {**COUNTED, field: COUNTED[field] + 1}, 9, 0)


def test_only_kills_explain_a_request_that_was_answered_again() -> None:
    again = {**COUNTED, "requests": 16}

    check_effects("r", again, 9, 5)
    with pytest.raises(Mismatch, match="run r: 5 requests were answered again; kills explain 4 at most"):
        check_effects("r", again, 9, 4)


def test_one_process_after_another_is_killed_until_the_work_is_done() -> None:
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]

    with killing(lambda: [each.pid for each in sleepers if each.poll() is None], every=0.01) as kills:
        codes = [each.wait(30) for each in sleepers]

    assert codes == [-9, -9]
    assert kills.count >= 2


def test_chaos_is_for_those_who_survive_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--chaos", "1", "--only", "reference_b"])

    assert ended.value.code == 2
    assert "--chaos is for ours, reference_a" in capsys.readouterr().err


def test_a_run_takes_turns_checks_each_and_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--facilities",
        "1",
        "--patients",
        "2",
        "--rounds",
        "2",
        "--only",
        "reference_a",
        "--out",
        str(tmp_path),
    ]

    assert main(arguments) == 0

    printed = capsys.readouterr()
    assert printed.out.split() == [str(tmp_path / "pft-1x2.md"), str(tmp_path / "pft-1x2.json")]
    assert printed.err.count("reference_a") == 2


def test_a_report_has_medians_ratios_and_totals(tmp_path: Path) -> None:
    def turn(name: str, seconds: float) -> Turn:
        done = Drained(rows=100, frames=2, requests=120, http_seconds=3.0, sql_seconds=1.0, row_seconds=5.0)
        return Turn(contestant=name, seconds=seconds, done=done, totals={"conditions": 120},
                    stats={"requests": 120, "refused": 0, "cpu_seconds": 0.012})  # fmt: skip

    report = _report(
        Conditions(size=Size(2, 6)), 2, [turn("a", 1.0), turn("b", 4.0), turn("a", 3.0), turn("b", 6.0), turn("a", 2.0)]
    )
    page, document = write(report, tmp_path / "reports")

    assert report.seconds == {"a": 2.0, "b": 5.0}
    assert report.ratios == {"b/a": 2.5}
    text = page.read_text()
    assert page.name == "pft-2x6.md"
    assert "| a | 2.00 | 60 | 60% | 20% | 20% | 2 | 50.0 | 0 | 0 | 0 |" in text
    assert "| b over a | 2.500 |" in text
    assert "100 µs of processor time" in text
    assert json.loads(document.read_text())["requests"] == 120
