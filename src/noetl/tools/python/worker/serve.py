"""Requests in, replies out, until nobody asks any more."""

from __future__ import annotations

import json
import os
from typing import Any

from noetl.tools.python.worker.channel import Channel
from noetl.tools.python.worker.contract import forget, run
from noetl.tools.python.worker.faults import describe
from noetl.tools.python.worker.frames import is_frame, table_of
from noetl.tools.python.worker.state import ProcessState, end_with_parent, limit_memory
from noetl.tools.python.worker.tables import put_in_place, receive, send, write
from noetl.tools.python.worker.values import encode

__all__ = ["serve"]


def serve(channel: int, side: int, lifeline: int, memory: int, path: list[str]) -> None:
    """Answer every request on the channel. The files of tables come and go beside it."""
    end_with_parent(lifeline)
    limit_memory(memory)
    state = ProcessState(path)
    conversation = Channel(channel, side)
    while (frame := conversation.receive()) is not None:
        conversation.send(_answer(state, json.loads(frame), side))
    os._exit(0)  # nothing that user code has left behind may hold the process up


def _answer(state: ProcessState, request: dict[str, Any], side: int) -> bytes:
    reply = _attempt(state, request, side)
    forget()
    return reply if state.leave() else reply[:-1] + b',"retire":true}'


def _attempt(state: ProcessState, request: dict[str, Any], side: int) -> bytes:
    try:
        state.enter(request["directory"], request.get("environment", {}))
        if "tables" in request:
            put_in_place(request, receive(side))
        value = run(request)
        return _table(value, request, side) if is_frame(value) else b'{"result":' + encode(value) + b"}"
    except BaseException as error:  # also SystemExit: the task has failed, the process goes on
        return encode(describe(error, request["code"]))


def _table(frame: Any, request: dict[str, Any], side: int) -> bytes:
    """The reply to code that has returned a table; the table itself goes as an open file."""
    written = write(table_of(frame), request["room"], request["scratch"])
    try:
        send(side, [written.descriptor])
    finally:
        os.close(written.descriptor)
    return b'{"table":%d}' % written.bytes
