"""What code may use without being given it: the frame or the group that it runs for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from noetl.payloads.tables import TableValue
from noetl.tools.base import Outcome
from noetl.tools.python.tool import PythonTool
from noetl.tools.python.worker.offered import Offered
from tests.unit.tools.python_calls import call, error_of, running

FRAME = {"index": 3, "table": TableValue(pa.table({"a": [1, 2]})), "policy": {"max_rows": 2}}


@pytest.fixture
async def tool() -> AsyncIterator[PythonTool]:
    async with running(workers=1) as made:
        yield made


async def offered(tool: PythonTool, code: str, **inputs: Any) -> Outcome:
    return await tool.run(call(code, input=inputs, offered={"frame": FRAME}))


async def test_code_reads_it_by_attribute_and_by_key(tool: PythonTool) -> None:
    code = "result = [frame.index, frame['index'], frame.table.num_rows, frame.rows, frame.policy['max_rows']]"
    assert (await offered(tool, code)).result == [3, 3, 2, [{"a": 1}, {"a": 2}], 2]


async def test_an_input_of_the_same_name_goes_before(tool: PythonTool) -> None:
    assert (await offered(tool, "result = frame", frame="mine")).result == "mine"


async def test_code_that_does_not_mention_it_is_not_sent_it(tool: PythonTool) -> None:
    assert (await offered(tool, "result = [name for name in globals() if name.startswith('fra')]")).result == []


async def test_what_is_not_there_is_named_with_what_is(tool: PythonTool) -> None:
    error = (await offered(tool, "result = frame.tabel")).error
    assert error is not None
    assert "there is index, table, policy, and no 'tabel'" in error["message"]


async def test_code_says_which_row_is_at_fault(tool: PythonTool) -> None:
    error, _ = await error_of(tool, "error = ValueError('x')\nerror.row = 4\nraise error")
    assert (error["code"], error["row"]) == ("PY_ValueError", 4)


def test_a_key_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no 'b'"):
        Offered({"a": 1})["b"]
