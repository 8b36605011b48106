"""Tables in and out of python code: as open files, whole, and with nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import venv
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noetl.errors import InvalidInput
from noetl.payloads.mapped import mapped_file
from noetl.payloads.tables import TableValue
from noetl.tools.base import Outcome
from noetl.tools.python.tables import TableMemory
from noetl.tools.python.tool import PythonTool
from noetl.tools.python.worker.frames import NotSerialisable, table_of
from noetl.tools.python.worker.tables import is_sealed, write
from tests.unit.payloads.test_tables import TABLES
from tests.unit.tools.processes import until
from tests.unit.tools.python_calls import call, error_of, result_of, running

TABLE = pa.table({"a": [1, 2, 3], "s": ["x", None, "z"]})
MAKE = "import pyarrow as pa\nresult = pa.table({'a': [1, 2, 3], 's': ['x', None, 'z']})"


@pytest.fixture
async def tool() -> AsyncIterator[PythonTool]:
    async with running(workers=2) as made:
        yield made


def open_files() -> set[str]:
    """What this process has open in memory or without a name."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if "noetl-table" in target or target.endswith("(deleted)"):
            found.add(f"{entry.name} {target}")
    return found


def is_empty(directory: Path) -> bool:
    return not list(directory.iterdir())


def device_of(directory: Path) -> int:
    return directory.stat().st_dev


async def table_from(tool: PythonTool, code: str, **inputs: Any) -> pa.Table:
    value = await result_of(tool, code, **inputs)
    assert isinstance(value, TableValue)
    assert value.native
    return value.arrow


# --- There and back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
async def test_a_table_goes_to_code_and_comes_back_as_it_was(name: str, tool: PythonTool) -> None:
    back = await table_from(tool, "result = t", t=TableValue(TABLES[name]))
    assert back.equals(TABLES[name], check_metadata=True)


@pytest.mark.parametrize(
    "made",
    [
        "table",
        "table.to_batches()[0]",
        "pa.RecordBatchReader.from_batches(table.schema, table.to_batches())",
        "pa.ipc.open_stream(stream.getvalue())",
    ],
)
async def test_everything_that_is_a_table_to_arrow_is_one(made: str, tool: PythonTool) -> None:
    code = f"""
import pyarrow as pa
table = pa.table({{'a': [1, 2, 3], 's': ['x', None, 'z']}})
stream = pa.BufferOutputStream()
with pa.ipc.new_stream(stream, table.schema) as writer: writer.write_table(table)
return {made}
"""
    assert (await table_from(tool, code)).equals(TABLE)


async def test_code_gets_a_table_that_is_a_view_of_the_file(tool: PythonTool) -> None:
    code = """
buffer = t.column('a').chunk(0).buffers()[1]
result = {'type': f'{type(t).__module__}.{type(t).__name__}', 'mutable': buffer.is_mutable, 'meta': t.schema.metadata,
          'allocated': __import__('pyarrow').total_allocated_bytes(), 'rows': t.num_rows}
"""
    large = TableValue(pa.table({"a": pa.array(range(1_000_000))}))
    seen = await result_of(tool, code, t=large)
    assert seen == {"type": "pyarrow.lib.Table", "mutable": False, "meta": None, "allocated": 0, "rows": 1_000_000}


async def test_tables_stand_wherever_they_are_given(tool: PythonTool) -> None:
    value = TableValue(TABLE)
    code = "result = [t.num_rows, deep['list'][1].num_rows, deep['list'][0], rows, t is deep['list'][1]]"
    assert await result_of(tool, code, t=value, deep={"list": [7, value]}, rows=value["rows"][:1]) == [
        3, 3, 7, [{"a": 1, "s": "x"}], True,
    ]  # fmt: skip


async def test_context_and_the_previous_result_may_be_tables(tool: PythonTool) -> None:
    context = {"load": TableValue(TABLE), "_prev": TableValue(TABLE)}
    outcome = await tool.run(call("result = [context['load'].num_rows, data.num_rows]", told=lambda: context))
    assert outcome.result == [3, 3]


async def test_frames_inside_of_a_result_become_rows(tool: PythonTool) -> None:
    code = "import pyarrow as pa, decimal\nresult = {'t': pa.table({'d': [decimal.Decimal('1.5'), None]}), 'n': 1}"
    assert await result_of(tool, code) == {"t": [{"d": 1.5}, {"d": None}], "n": 1}


async def test_a_table_that_was_passed_before_is_passed_as_the_same_file(tool: PythonTool) -> None:
    """Two consumers at the same time share one piece of memory."""
    made = TableValue(await table_from(tool, MAKE))
    code = "import os\nresult = sum(1 for line in open('/proc/self/maps') if 'noetl-table' in line)"
    assert await asyncio.gather(*(result_of(tool, code, t=made) for _ in range(2))) == [1, 1]
    before = open_files()
    await result_of(tool, "result = t.num_rows", t=made)
    assert open_files() == before


async def test_a_table_without_a_file_is_written_once(tool: PythonTool) -> None:
    value = TableValue(pa.table({"a": [1]}))
    await result_of(tool, "result = 1", t=value)
    first = mapped_file(value.arrow)
    await result_of(tool, "result = 1", t=value)
    assert mapped_file(value.arrow) is first is not None


# --- What is refused ---------------------------------------------------------------------------------------


async def test_columns_of_one_name_are_refused(tool: PythonTool) -> None:
    error, _ = await error_of(tool, "import pyarrow as pa\nresult = pa.table([[1], [2]], names=['a', 'a'])")
    assert (error["kind"], error["code"]) == ("schema", "RESULT_NOT_SERIALISABLE")
    assert error["message"] == "the Table has several columns with the name 'a'; rename them"


async def test_the_place_of_a_bad_frame_inside_of_a_result_is_named(tool: PythonTool) -> None:
    error, _ = await error_of(tool, "import pyarrow as pa\nresult = {'x': [pa.table([[1], [2]], names=['a', 'a'])]}")
    assert "rename them (at ['x'][0])" in error["message"]


async def test_a_table_with_wrong_offsets_does_not_reach_us(tool: PythonTool) -> None:
    code = """
import pyarrow as pa
offsets = pa.py_buffer(b''.join(place.to_bytes(4, 'little') for place in (0, 1 << 30, 4)))
bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b'x' * 64)])
result = pa.Table.from_batches([pa.record_batch([bad], names=['s'])])
"""
    error, _ = await error_of(tool, code)
    assert error["code"] == "RESULT_NOT_SERIALISABLE"
    assert "is not valid" in error["message"]


def test_a_file_that_is_not_what_was_announced_is_refused(tmp_path: Path) -> None:
    memory = TableMemory()
    written = write(TABLE, 1 << 20, str(tmp_path))
    for length in (written.bytes - 1, 0):
        with pytest.raises(InvalidInput, match="not whole"):
            memory._opened(written.descriptor, length)
    os.close(written.descriptor)
    (tmp_path / "noise").write_bytes(b"x" * 100)
    with (tmp_path / "noise").open("rb") as noise, pytest.raises(InvalidInput, match="not valid"):
        memory._opened(noise.fileno(), 100)


async def test_an_interpreter_without_pyarrow_says_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    async with running() as tool:
        fields = {"deps": {"venv_path": str(tmp_path / "bare")}}
        outcome = await tool.run(call("result = t", fields=fields, input={"t": TableValue(TABLE)}))
        assert outcome.error is not None
        assert (outcome.error["kind"], outcome.error["code"]) == ("schema", "PY_PyarrowMissing")
        assert "add pyarrow to deps.packages, or take its rows instead: {{ step.rows }}" in outcome.error["message"]
        frame = "class DataFrame: pass\nDataFrame.__module__ = 'pandas'\nresult = DataFrame()"
        outcome = await tool.run(call(frame, fields=fields))
        assert outcome.error is not None
        assert "return its rows instead: frame.to_dict('records')" in outcome.error["message"]
        assert (await tool.run(call("result = 1", fields=fields))).result == 1


async def test_too_many_rows_as_json_are_refused(tool: PythonTool) -> None:
    rows = TableValue(pa.table({"a": pa.array(range(5_000_000), pa.int32())}))["rows"]
    error, _ = await error_of(tool, "result = 1", rows=rows)
    assert error["code"] == "INPUT_NOT_SERIALISABLE"
    assert "give it whole" in error["message"]


# --- Data frames of other libraries ------------------------------------------------------------------------


class Index:
    names: tuple[str | None, ...] = (None,)


def frame_of(columns: list[Any]) -> Any:
    """What we ask of a pandas.DataFrame, where it is not installed."""
    return type("DataFrame", (), {"__module__": "pandas.core.frame", "index": Index(), "columns": columns})()


def test_pandas_columns_must_have_text_for_names() -> None:
    with pytest.raises(NotSerialisable, match="a column named 0, which is no text"):
        table_of(frame_of([0]))


def test_a_polars_frame_is_read_through_arrow() -> None:
    def stream(_: Any, requested_schema: Any = None) -> Any:
        capsule: Any = TABLE
        return capsule.__arrow_c_stream__(requested_schema)

    frame = type("DataFrame", (), {"__module__": "polars.dataframe.frame", "__arrow_c_stream__": stream})()
    assert table_of(frame).equals(TABLE)


# --- Room --------------------------------------------------------------------------------------------------


async def test_a_table_that_memory_has_no_room_for_goes_to_disk(tmp_path: Path) -> None:
    async with running(workers=1, table_memory=100) as tool:
        pid = await result_of(tool, "result = os.getpid()")
        outcome = await tool.run(call(MAKE, scratch=tmp_path / "scratch"))
        assert outcome.result.arrow.equals(TABLE)
        known = mapped_file(outcome.result.arrow)
        assert known is not None
        assert os.fstat(known.file.descriptor).st_dev == device_of(tmp_path)
        assert not is_sealed(known.file.descriptor)
        assert is_empty(tmp_path / "scratch")
        # Nobody may be left who could cut the file off while we have it mapped.
        assert await result_of(tool, "result = os.getpid()") != pid
        assert await result_of(tool, "result = t.num_rows", t=outcome.result) == 3


async def test_memory_is_counted_while_somebody_holds_a_table(tmp_path: Path) -> None:
    memory = TableMemory(10_000)
    written = write(TABLE, memory.room, str(tmp_path))
    assert is_sealed(written.descriptor)
    table: Any = await memory.open(written.descriptor, written.bytes)
    assert memory.room == 10_000 - written.bytes
    del table
    gc.collect()
    await until(lambda: memory.room == 10_000)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(written.descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of files are Linux's")
async def test_a_full_disk_is_an_error_that_says_where(tmp_path: Path) -> None:
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
{MAKE}
"""
    async with running(table_memory=0) as tool:
        outcome = await tool.run(call(code, scratch=tmp_path))
    assert outcome.error is not None
    assert outcome.error["code"] == "PY_TableNotWritten"
    assert f"has no room in {tmp_path}" in outcome.error["message"]
    assert is_empty(tmp_path)


async def test_two_hundred_megabytes_fit_into_the_usual_memory_limit(tool: PythonTool) -> None:
    code = """
import pyarrow as pa
result = pa.table({str(n): pa.repeat(n, 5_000_000) for n in range(5)})
"""
    made = TableValue(await table_from(tool, code))
    assert made.arrow.nbytes >= 200_000_000
    assert await result_of(tool, "import pyarrow.compute as pc\nresult = pc.sum(t['3']).as_py()", t=made) == 15_000_000


# --- Ends --------------------------------------------------------------------------------------------------


async def test_a_process_that_is_killed_while_it_writes_leaves_nothing(tmp_path: Path) -> None:
    """It has written a part of the table to memory, or to a file, and is gone."""
    code = """
import os, signal
import pyarrow as pa
real = pa.OSFile
class Dying:
    def __init__(self, *args):
        self.file = real(*args)
        self.file.write(b'half a table')
        os.kill(os.getpid(), signal.SIGKILL)
pa.OSFile = Dying
result = pa.table({'a': [1]})
"""
    for memory in (1 << 20, 0):
        async with running(table_memory=memory) as tool:
            before = open_files()
            outcome: Outcome = await tool.run(call(code, scratch=tmp_path))
            assert outcome.error is not None
            assert outcome.error["code"] == "PY_WorkerDied"
            assert open_files() == before
            assert is_empty(tmp_path)
            assert await result_of(tool, "result = 1") == 1


async def test_a_reply_without_its_file_ends_the_process(tool: PythonTool) -> None:
    code = """
import os, socket
for fd in range(3, 40):
    try: sock = socket.socket(fileno=os.dup(fd))
    except OSError: continue
    # On every socket of this process, which is not how it is done: a reply that speaks of a table, and none with it.
    body = b'{"table":100}'
    try: sock.send(len(body).to_bytes(4, 'big') + body)
    except OSError: pass
os.kill(os.getpid(), 19)
"""
    error, _ = await error_of(tool, code)
    assert error["code"] == "PY_WorkerDied"
    assert signal.Signals(19).name == "SIGSTOP"
    assert await result_of(tool, "result = 1") == 1


async def test_a_process_keeps_no_table_between_calls(tool: PythonTool) -> None:
    maps = "result = sum(1 for line in open('/proc/self/maps') if 'noetl-table' in line)"
    for _ in range(3):
        assert await result_of(tool, maps, t=TableValue(TABLE)) == 1
        assert await result_of(tool, maps) == 0


async def test_c_libraries_may_import_while_code_runs(tool: PythonTool) -> None:
    assert await result_of(tool, "import pyarrow as pa\nresult = pa.array([1.5, None]).to_pylist()") == [1.5, None]
