"""Python code in the process that asks for it: a thread for each call, and no copy of its tables.

For processes that are made to run users' code and nothing else, such as the Python workers of Spark. What a thread
cannot give, a call gets a process of its own for, as elsewhere: an end when its time is up, other packages, variables
that only it sees.
"""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from noetl.tools.base import Call, Outcome, failed
from noetl.tools.python.request import HEADER_BYTES, Request, frame_of, reply_of
from noetl.tools.python.tables import apart
from noetl.tools.python.tool import PythonTool, absolute, request_of, source_of
from noetl.tools.python.worker.contract import forget, run
from noetl.tools.python.worker.faults import describe
from noetl.tools.python.worker.frames import is_frame, table_of
from noetl.tools.python.worker.tables import set_in_place, without_our_notes
from noetl.tools.python.worker.values import encode

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["InlinePythonTool"]

_MOST_THREADS = 256


class InlinePythonTool(PythonTool):
    """Runs code here. Working directory and import path are those of the process, whoever has set them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="noetl-code")

    async def run(self, call: Call) -> Outcome:
        """Run the code of a call."""
        limited = call.timeout is not None or self.time_limit is not None
        if limited or call.auth or call.fields.get("deps"):
            return await super().run(call)
        source = await source_of(call)
        if isinstance(source, Outcome):
            return source
        try:
            request = _read(request_of(call, source, absolute(call.directory), 0))
        except (TypeError, ValueError, RecursionError) as error:
            return failed("schema", "INPUT_NOT_SERIALISABLE", f"the inputs cannot be sent as JSON: {error}")
        running = asyncio.get_running_loop().run_in_executor(self._threads, _attempt, request)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})  # a thread cannot be stopped: whoever gives up waits for it, or ends us all
            raise

    async def close(self) -> None:
        """End the processes; threads end with what they run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await super().close()


def _read(request: Request) -> dict[str, Any]:
    """What code sees is what comes out of JSON, here as in any other process; tables are put in as they are."""
    places: Any = []
    tables: list[pa.Table] = []
    try:
        frame = frame_of(request)
    except TypeError:
        request, tables, places = apart(request)
        frame = frame_of(request)
    seen: dict[str, Any] = json.loads(frame[HEADER_BYTES:])
    set_in_place(seen, [without_our_notes(table) for table in tables], places)
    return seen


def _attempt(request: dict[str, Any]) -> Outcome:
    """Runs in a thread."""
    module = f"noetl_code_{threading.get_ident()}"
    try:
        value = run(request, module)
        if is_frame(value):
            return _table(value)
        reply = reply_of(memoryview(b'{"result":' + encode(value) + b"}"))
    except BaseException as error:  # also SystemExit: the task has failed, the process goes on
        reply = reply_of(memoryview(encode(describe(error, request["code"]))))
    finally:
        forget(module)
    if reply.error is not None:
        return failed(**reply.error, extra={"py": reply.py} if reply.py else {})
    return Outcome(result=reply.result)


def _table(value: Any) -> Outcome:
    import pyarrow as pa

    from noetl.payloads.tables import TableValue

    table = table_of(value)
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        return failed(
            "schema", "RESULT_NOT_SERIALISABLE", f"the table that the code has returned is not valid: {error}"
        )
    return Outcome(result=TableValue(table))
