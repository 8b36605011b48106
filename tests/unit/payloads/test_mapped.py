"""Which file a table lies in."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path

import pyarrow as pa
import pytest

from noetl.payloads.mapped import follow, mapped_file, note


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with pa.ipc.new_stream(str(tmp_path / "t"), pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [1, 2]}))
    return tmp_path / "t"


def opened(file: Path) -> pa.Table:
    with file.open("rb") as descriptor:
        whole = mmap.mmap(descriptor.fileno(), 0, access=mmap.ACCESS_READ)
        table = pa.ipc.open_stream(pa.py_buffer(whole)).read_all()
        note(table, descriptor.fileno(), 0, len(whole))
    return table


def test_a_table_is_found_by_itself_and_by_nothing_else(file: Path) -> None:
    table = opened(file)
    found = mapped_file(table)
    assert found is not None
    assert os.fstat(found.file.descriptor).st_ino == file.stat().st_ino
    assert (found.offset, found.length) == (0, file.stat().st_size)
    assert mapped_file(pa.table({"a": [1, 2]})) is None
    assert mapped_file(table.slice(1)) is None


def test_the_same_columns_under_another_schema_are_in_the_same_file(file: Path) -> None:
    table = opened(file)
    other = table.replace_schema_metadata({"x": "y"})
    follow(other, table)
    assert mapped_file(other) == mapped_file(table)


def test_the_file_is_closed_with_the_last_table(file: Path) -> None:
    table = opened(file)
    found = mapped_file(table)
    assert found is not None
    descriptor = found.file.descriptor
    del found
    other = table.replace_schema_metadata(None)
    follow(other, table)
    del table
    gc.collect()
    assert os.fstat(descriptor)
    del other
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
