"""python: run the code of a task (DSL 9.1)."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, failed
from noetl.tools.processes import trace_variables, variables_of
from noetl.tools.python.environments import Environment, environment_of
from noetl.tools.python.pool import Answered, Pool
from noetl.tools.python.process import CallTimedOut, ProcessGone
from noetl.tools.python.request import Request, frame_of
from noetl.tools.python.tables import TABLE_MEMORY, Passing, TableMemory
from noetl.tools.scripts import load_rendered
from noetl.tools.values import BadField

__all__ = ["PythonTool", "absolute", "request_of", "source_of"]

DEFAULT_MEMORY_LIMIT = 4 << 30
# A name in code: neither an attribute nor the content of a string that holds nothing else. May find too much (a
# comment), never too little; then something is sent that nobody reads.
_CONTEXT = re.compile(r"""(?<!["'.\w])context(?!["'\w])""")
_DATA = re.compile(r"""(?<!["'.\w])data(?!["'\w])""")


class PythonTool:
    """Runs code in warm processes apart from ours, as many at a time as there are processes."""

    kind = "python"
    rendering: Mapping[str, Rendering] = {"code": "code", "script": "code", "input": "lazy"}
    required: tuple[tuple[str, ...], ...] = (("script", "code_b64", "code"),)
    keyed = False
    """Code does not see the key of its effect."""

    def __init__(
        self,
        workers: int | None = None,
        memory_limit: int | None = DEFAULT_MEMORY_LIMIT,
        cache: Path | None = None,
        time_limit: float | None = None,
        table_memory: int = TABLE_MEMORY,
    ) -> None:
        """`time_limit` holds for every call, whatever its task asks for; `table_memory` for the tables of all calls."""
        self.time_limit = time_limit
        self._pool = Pool(workers or _default_workers(), memory_limit)
        self._cache = cache or _default_cache()
        self._tables = TableMemory(table_memory)

    def side_effecting(self, fields: Json) -> bool:
        """Nobody knows what code does."""
        return True

    async def prepare(self, directory: Path = Path()) -> None:
        """Start a process while there are other things to do, so that the first call need not wait for it."""
        environment = await environment_of(None, absolute(directory), self._cache)
        with suppress(OSError):  # the first call will be told
            self._pool.prepare(environment)

    async def run(self, call: Call) -> Outcome:
        """Run the code of a call."""
        source = await source_of(call)
        if isinstance(source, Outcome):
            return source
        directory = absolute(call.directory)
        try:
            environment = await environment_of(call.fields.get("deps"), directory, self._cache)
        except BadField as error:
            return error.outcome
        try:
            frame, passing = await self._packed(request_of(call, source, directory, self._tables.room))
        except (TypeError, ValueError, RecursionError, InvalidInput) as error:
            return failed("schema", "INPUT_NOT_SERIALISABLE", f"the inputs cannot be sent as JSON: {error}")
        except OSError as error:
            return failed("storage_quota", "INPUT_NOT_PASSED", f"a table of the inputs cannot be passed on: {error}")
        limits = [limit for limit in (call.timeout, self.time_limit) if limit is not None]
        return await self._run(environment, frame, min(limits, default=None), passing)

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()

    async def _packed(self, request: Request) -> tuple[bytes, Passing]:
        """The frame of a request; only one that cannot be encoded is looked through for tables."""
        try:
            return frame_of(request), Passing()
        except TypeError:
            request, passing = await self._tables.pack(request)
            return frame_of(request), passing

    async def _run(self, environment: Environment, frame: bytes, limit: float | None, passing: Passing) -> Outcome:
        try:
            answered = await self._pool.run(environment, frame, limit, passing.descriptors)
            return await self._outcome(answered)
        except CallTimedOut as error:
            (logs,) = error.args
            return failed("timeout", "TIMEOUT", f"the code ran longer than {limit:g} s and was ended", logs=logs)
        except ProcessGone as error:
            how, logs = error.args
            return _died(f"the process that ran the code {how}", logs)
        except OSError as error:
            return _died(f"{environment.interpreter} could not be started: {error}", "")

    async def _outcome(self, answered: Answered) -> Outcome:
        reply, logs = answered.reply, answered.logs
        if reply.error is not None:
            return failed(**reply.error, extra={"py": reply.py} if reply.py else {}, logs=logs)
        if reply.table is None:
            return Outcome(result=reply.result, logs=logs)
        try:
            return Outcome(result=await self._tables.open(answered.file, reply.table), logs=logs)
        except InvalidInput as error:
            return failed("schema", "RESULT_NOT_SERIALISABLE", str(error), logs=logs)


def _died(message: str, logs: str) -> Outcome:
    extra = {"py": {"exception": "WorkerDied", "traceback": ""}}
    return failed("transform", "PY_WorkerDied", message, extra=extra, logs=logs)


async def source_of(call: Call) -> str | Outcome:
    """The code of a call, or why there is none."""
    fields = call.fields
    if fields.get("script") is not None:
        return await load_rendered(fields["script"], call)
    if fields.get("code_b64") is not None:
        return _decoded(str(fields["code_b64"]))
    if fields.get("code") is None:
        return failed("schema", "FIELD_MISSING", "a python task needs script or code_b64 or code")
    return str(fields["code"])


def _decoded(text: str) -> str | Outcome:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        return failed("parse", "CODE_NOT_BASE64", f"code_b64 is not text in base64: {error}")


def request_of(call: Call, source: str, directory: str, room: int) -> Request:
    """What the code of a call is to see."""
    libs = call.fields.get("libs")
    return Request(
        code=source,
        input=call.input,
        directory=directory,
        context=call.context if _CONTEXT.search(source) else UNSET,
        data=_implied_data(call) if "data" not in call.input and _DATA.search(source) else UNSET,
        libs=_named(libs) if libs else UNSET,
        environment={**trace_variables(), **(variables_of(call.auth) if call.auth else {})} or UNSET,
        offered=_offered(call, source) or UNSET,
        room=room,
        scratch=_from_here(call.scratch),
    )


def _named(libs: Any) -> Json:
    """`libs` as a mapping; a list of modules names each by itself."""
    return dict(libs) if isinstance(libs, Mapping) else {name.partition(".")[0]: name for name in libs}


def _offered(call: Call, source: str) -> Json:
    """What the code mentions of what it may use; an input of the same name goes before."""
    if not call.offered:
        return {}
    return {name: value for name, value in call.offered.items() if name not in call.input and name in source}


def _implied_data(call: Call) -> Any | UnsetType:
    """What `data` means to code that was not given it (NTL-931): the name, else the previous result."""
    context = call.context
    for scope in (context, context.get("ctx"), context.get("workload")):
        if isinstance(scope, Mapping) and "data" in scope:
            return scope["data"]
    return context.get("_prev", context.get("result", UNSET))


def absolute(directory: Path) -> str:
    """The directory, from the root."""
    return _from_root(directory) or os.path.abspath(directory)  # noqa: PTH100 - on the way of every call


@lru_cache(maxsize=64)
def _from_root(directory: Path) -> str | None:
    """The same of one that says where it begins, and so stays where it is; None for any other."""
    return os.path.normpath(directory) if directory.is_absolute() else None


def _from_here(scratch: Path) -> str:
    """The same for a directory that most calls are the first to name: to remember it would take longer."""
    text = str(scratch)
    return text if os.path.isabs(text) else os.path.abspath(text)  # noqa: PTH100, PTH117 - on the way of every call


def _default_workers() -> int:
    return min(max(2, os.cpu_count() or 2), 8)


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "noetl" / "python"
