"""Code in the process that asks for it gives what it gives in one of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from noetl.payloads.tables import TableValue
from noetl.tools.base import Outcome
from noetl.tools.python.inline import InlinePythonTool
from tests.unit.tools.python_calls import call, running

TABLE = TableValue(pa.table({"a": [1, 2]}).replace_schema_metadata({"noetl.note": "ours", "theirs": "x"}))
CODES: dict[str, tuple[str, dict[str, Any]]] = {
    "a value": ("result = {'n': n + 1, 'at': at}", {"n": 1, "at": [1, {"x": None}]}),
    "a text that is JSON only outside": ("import datetime\nresult = datetime.date(2024, 1, 2)", {}),
    "main": ("def main(n):\n    return n * 2", {"n": 4}),
    "await": ("import asyncio\nawait asyncio.sleep(0)\nresult = 5", {}),
    "a dataclass": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
        "result = P(3).x",
        {},
    ),
    "an error": ("def f():\n    raise KeyError('x')\nf()", {}),
    "an end": ("import sys\nsys.exit(3)", {}),
    "no syntax": ("result = (", {}),
    "not JSON": ("result = {1, object()}", {}),
    "a table in": ("result = [frame.rows, [key.decode() for key in frame.table.schema.metadata or {}]]", {}),
}  # fmt: skip


@pytest.fixture
async def inline() -> AsyncIterator[InlinePythonTool]:
    tool = InlinePythonTool(workers=1)
    yield tool
    await tool.close()


def without_paths(outcome: Outcome) -> Any:
    return outcome.result, outcome.error, outcome.extra


@pytest.mark.parametrize("name", CODES)
async def test_it_gives_what_a_process_gives(name: str, inline: InlinePythonTool) -> None:
    code, given = CODES[name]
    asked = call(code, input=given, offered={"frame": {"table": TABLE}}, timeout=None)
    async with running(workers=1) as apart:
        assert without_paths(await inline.run(asked)) == without_paths(await apart.run(asked))


async def test_a_table_comes_out_as_a_table(inline: InlinePythonTool) -> None:
    code = "result = frame.table.append_column('b', frame.table['a'])"
    said = (await inline.run(call(code, offered={"frame": {"table": TABLE}}, timeout=None))).result
    assert said.arrow.to_pydict() == {"a": [1, 2], "b": [1, 2]}


async def test_it_runs_here_unless_it_must_be_ended_or_see_variables_of_its_own(inline: InlinePythonTool) -> None:
    code = "import os\nresult = os.getpid()"
    assert (await inline.run(call(code, timeout=None))).result == os.getpid()
    assert (await inline.run(call(code, timeout=30.0))).result != os.getpid()
    assert (await inline.run(call(code, timeout=None, auth={"token": "t"}))).result != os.getpid()


async def test_many_at_once_do_not_see_each_other(inline: InlinePythonTool) -> None:
    code = "class C:\n    pass\nimport sys, time\ntime.sleep(0.01)\nresult = sys.modules[C.__module__].n"
    calls = [inline.run(call(code, input={"n": n}, timeout=None)) for n in range(16)]
    assert [said.result for said in await asyncio.gather(*calls)] == list(range(16))
