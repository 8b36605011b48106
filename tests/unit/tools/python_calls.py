"""Calls of the python tool, as the tests make them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from noetl.tools.base import Call, Outcome
from noetl.tools.python.tool import PythonTool
from tests.unit.tools.processes import PATIENCE


def call(code: str | None = None, /, *, fields: dict[str, Any] | None = None, **more: Any) -> Call:
    """A call of the tool; `fields` beside the code."""
    given = {**({"code": code} if code is not None else {}), **(fields or {})}
    return Call(kind="python", fields=given, **{"timeout": PATIENCE, **more})


async def result_of(tool: PythonTool, code: str, /, **inputs: Any) -> Any:
    """What code gives with these inputs; it must not fail."""
    outcome = await tool.run(call(code, input=inputs))
    assert outcome.error is None, outcome
    return outcome.result


async def error_of(tool: PythonTool, code: str, /, **inputs: Any) -> tuple[dict[str, Any], Outcome]:
    """The error of code that must fail, and the whole outcome."""
    outcome = await tool.run(call(code, input=inputs))
    assert outcome.error is not None, outcome
    return outcome.error, outcome


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[PythonTool]:
    """A tool that is closed in the end, whatever happens."""
    tool = PythonTool(**options)
    try:
        yield tool
    finally:
        await tool.close()
