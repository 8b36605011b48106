"""The files of a dataset, as parts."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.source import files
from noetl.errors import Conflict, InvalidInput, NotFound


def rows(parts: list[files.FilePart]) -> list[dict[str, object]]:
    return [row for part in parts for batch in files.read(part) for row in batch.to_pylist()]


def test_row_groups_are_read_by_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ROWS_AT_ONCE", 4)
    pq.write_table(pa.table({"a": list(range(10))}), tmp_path / "a.parquet", row_group_size=2)
    schema, parts = files.find(tmp_path, "datasets/a")
    assert [part.groups for part in parts] == [(0, 1), (2, 3), (4,)]
    assert (schema.names, [row["a"] for row in rows(parts)]) == (["a"], list(range(10)))


def test_every_form_and_hidden_files_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.jsonl").write_text('{"a": 2}\n')
    pq.write_table(pa.table({"a": [3]}), tmp_path / "c.parquet")
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as file, pa.ipc.new_file(file, pa.schema({"a": pa.int64()})) as out:
        out.write_batch(pa.record_batch({"a": [4]}))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.csv.crc").write_bytes(b"no")
    assert sorted(row["a"] for row in rows(files.find(tmp_path, "datasets/a")[1])) == [1, 2, 3, 4]  # type: ignore[type-var]


def test_directories_are_columns(tmp_path: Path) -> None:
    for day, shop, rest in (("2026-01-01", "1", "x%2Fy"), ("2026-01-02", "__HIVE_DEFAULT_PARTITION__", "z")):
        folder = tmp_path / f"day={day}" / f"shop={shop}" / f"note={rest}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"a": [1]}), folder / "a.parquet")
    schema, parts = files.find(tmp_path, "datasets/a")
    assert {field.name: str(field.type) for field in schema} == {
        "a": "int64", "day": "date32[day]", "shop": "int32", "note": "string",
    }  # fmt: skip
    assert rows(parts) == [
        {"a": 1, "day": date(2026, 1, 1), "shop": 1, "note": "x/y"},
        {"a": 1, "day": date(2026, 1, 2), "shop": None, "note": "z"},
    ]


def test_numbers_that_are_none_are_text(tmp_path: Path) -> None:
    for shop in ("007", "8"):
        (tmp_path / f"shop={shop}").mkdir()
        pq.write_table(pa.table({"a": [1]}), tmp_path / f"shop={shop}" / "a.parquet")
    assert files.find(tmp_path, "datasets/a")[0].field("shop").type == pa.string()


def test_what_is_not_alike_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'datasets/a' has no files"):
        files.find(tmp_path / "none", "datasets/a")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"b": [1]}), tmp_path / "b.parquet")
    with pytest.raises(InvalidInput, match="lacks a and adds b"):
        files.find(tmp_path, "datasets/a")
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "x=1").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x=1" / "a.parquet")
    with pytest.raises(InvalidInput, match="not all of the same columns"):
        files.find(tmp_path, "datasets/a")


def test_a_file_that_was_replaced_meanwhile_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    _, parts = files.find(tmp_path, "datasets/a")
    pq.write_table(pa.table({"a": [1, 2, 3]}), path)
    with pytest.raises(Conflict, match="was changed since the query was planned"):
        rows(parts)
    path.unlink()
    with pytest.raises(NotFound, match="is gone since the query was planned"):
        rows(parts)
