"""Rows as tables, charts and files."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.cli.sheets import format_of, show
from noetl.errors import InvalidInput, Unavailable

ROWS = pa.table(
    {
        "execution_id": pa.array([318485246779594112, None], pa.int64()),
        "status": ["COMPLETED", 'odd, "text"'],
        "at": pa.array([datetime(2026, 5, 16, 14, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "date": [date(2026, 5, 16), None],
        "cost": pa.array([Decimal("0.001200000"), Decimal("10.000000000")], pa.decimal128(38, 9)),
        "tags": [["a", "b"], None],
    }
)


@pytest.mark.parametrize(
    ("asked", "out", "meant"),
    [
        (None, None, "table"),
        ("csv", None, "csv"),
        (None, "x.parquet", "parquet"),
        (None, "x.CSV", "csv"),
        ("json", "x.csv", "json"),
    ],
)
def test_the_format_is_the_one_asked_for_or_that_of_the_file(asked: str | None, out: str | None, meant: str) -> None:
    assert format_of(asked, None if out is None else Path(out)) == meant


def test_parquet_needs_a_file() -> None:
    with pytest.raises(InvalidInput, match="needs a file") as caught:
        format_of("parquet", None)
    assert caught.value.hint == "add --out FILE"


def test_csv_has_times_in_utc_and_lists_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "csv", None, {})
    assert capsys.readouterr().out.splitlines() == [
        "execution_id,status,at,date,cost,tags",
        '318485246779594112,COMPLETED,2026-05-16T14:00:00.000000Z,2026-05-16,0.0012,"[""a"",""b""]"',
        ',"odd, ""text""",,,10,',
    ]


def test_json_is_one_document_with_ids_and_amounts_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "json", None, {"position": 7})
    document = json.loads(capsys.readouterr().out)
    assert document["position"] == 7
    assert document["columns"][0] == {"name": "execution_id", "type": "int64"}
    assert document["rows"][0] == {
        "execution_id": "318485246779594112", "status": "COMPLETED", "at": "2026-05-16T14:00:00.000000Z",
        "date": "2026-05-16", "cost": "0.0012", "tags": ["a", "b"],
    }  # fmt: skip
    assert document["rows"][1]["execution_id"] is None


def test_a_table_has_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "table", None, {})
    printed = capsys.readouterr().out
    assert "318485246779594112" in printed
    assert 'odd, "text"' in printed


def test_files_are_whole(tmp_path: Path) -> None:
    show(ROWS, "parquet", tmp_path / "rows.parquet", {})
    assert pq.read_table(tmp_path / "rows.parquet").equals(ROWS)
    show(ROWS, "csv", tmp_path / "rows.csv", {})
    assert (tmp_path / "rows.csv").read_text().startswith("execution_id,status")
    show(ROWS, "json", tmp_path / "rows.json", {"more": False})
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.json", "rows.parquet"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"nix/rows.csv cannot be written: No such file"):
        show(ROWS, "csv", tmp_path / "nix" / "rows.csv", {})


def test_a_table_is_not_written_to_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a table is for a terminal"):
        show(ROWS, "table", tmp_path / "rows.txt", {})
    assert list(tmp_path.iterdir()) == []


def test_a_chart_draws_numbers_by_the_columns_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    show(pa.table({"status": ["A", "B"], "path": ["x", "y"], "n": [3, 1]}), "chart", None, {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("A x")
    assert first.endswith(" 3")
    assert first.count("█") > second.count("█")


def test_a_chart_over_time_shows_its_course(capsys: pytest.CaptureFixture[str]) -> None:
    show(pa.table({"day": [date(2026, 5, 16), date(2026, 5, 17)], "n": [1, 2]}), "chart", None, {})
    assert capsys.readouterr().out.splitlines()[-1].split() == ["2026-05-16", "2026-05-17"]


@pytest.mark.parametrize("rows", [pa.table({"status": ["A"]}), ROWS.select(["status", "cost"]).slice(0, 0)])
def test_what_has_nothing_to_draw_is_refused_with_an_example(rows: pa.Table) -> None:
    with pytest.raises(InvalidInput, match="to draw") as caught:
        show(rows, "chart", None, {})
    assert "SELECT status, count(*)" in (caught.value.hint or "")
