"""Requests in, replies out, until nobody asks any more."""

from __future__ import annotations

import json
import os
from typing import Any

from noetl.tools.python.worker.channel import Channel
from noetl.tools.python.worker.contract import run
from noetl.tools.python.worker.faults import describe
from noetl.tools.python.worker.state import ProcessState, end_with_parent, limit_memory
from noetl.tools.python.worker.values import encode

__all__ = ["serve"]


def serve(channel: int, lifeline: int, memory: int, path: list[str]) -> None:
    """Answer every request on the channel."""
    end_with_parent(lifeline)
    limit_memory(memory)
    state = ProcessState(path)
    conversation = Channel(channel)
    while (frame := conversation.receive()) is not None:
        conversation.send(_answer(state, json.loads(frame)))
    os._exit(0)  # nothing that user code has left behind may hold the process up


def _answer(state: ProcessState, request: dict[str, Any]) -> bytes:
    reply = _attempt(state, request)
    return reply if state.leave() else reply[:-1] + b',"retire":true}'


def _attempt(state: ProcessState, request: dict[str, Any]) -> bytes:
    try:
        state.enter(request["directory"], request.get("environment", {}))
        return b'{"result":' + encode(run(request)) + b"}"
    except BaseException as error:  # also SystemExit: the task has failed, the process goes on
        return encode(describe(error, request["code"]))
