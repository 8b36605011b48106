"""Which kinds there are, and where each is to be found."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, Tool, failed, ok

__all__ = ["BUILT_IN", "UNAVAILABLE", "Registry", "tool"]

# Kind -> module and class. A module is imported when its kind is first called.
BUILT_IN: Mapping[str, str] = {
    "python": "noetl.tools.python.tool:PythonTool",
    "http": "noetl.tools.http:HttpTool",
    "postgres": "noetl.tools.postgres:PostgresTool",
    "duckdb": "noetl.tools.duckdb:DuckdbTool",
    "shell": "noetl.tools.shell:ShellTool",
    "noop": "noetl.tools.noop:NoopTool",
    "artifact": "noetl.tools.artifact:ArtifactTool",
}
# Known to the language, on the way: what is missing is said when one is called.
UNAVAILABLE: Mapping[str, str] = {
    "spark": "data stages on Spark",
    "transfer": "data stages on Spark",
    "nats": "the distributed runtime",
    "subscription": "subscriptions",
    "script": "batch jobs",
    "container": "batch jobs",
    "ducklake": "the ducklake extension",
    "snowflake": "the snowflake connector",
    "mcp": "the MCP gateway",
    "agent": "nothing: this kind is retired, call a playbook",
}
ENTRY_POINTS = "noetl.tools"

_user_tools: dict[str, Tool] = {}


class Registry:
    """Tools by kind, made when first asked for. Users' tools come from `@noetl.tool` and from entry points.

    `options` are what a built-in kind is to be made with, by kind.
    """

    def __init__(self, tools: Mapping[str, Tool] | None = None, options: Mapping[str, Json] | None = None) -> None:
        self._made: dict[str, Tool] = dict(tools or {})
        self._options = dict(options or {})

    def find(self, kind: str) -> Tool | None:
        """The tool of a kind, or None."""
        if kind not in self._made:
            made = _user_tools.get(kind) or _built_in(kind, self._options.get(kind, {})) or _from_entry_point(kind)
            if made is None:
                return None
            self._made[kind] = made
        return self._made[kind]

    def user_kinds(self) -> frozenset[str]:
        """The kinds that users have added, for whoever checks documents."""
        from importlib.metadata import entry_points

        return frozenset(_user_tools) | {entry.name for entry in entry_points(group=ENTRY_POINTS)}

    async def run(self, call: Call) -> Outcome:
        """Run a call with its tool; a kind nobody offers is an outcome like any other."""
        found = self.find(call.kind)
        if found is None:
            missing = UNAVAILABLE.get(call.kind, f"a tool of kind '{call.kind}'")
            return failed("unknown", "KIND_UNAVAILABLE", f"kind '{call.kind}' cannot run here: it needs {missing}")
        for group in found.required:
            if not any(call.fields.get(name) is not None or call.input.get(name) is not None for name in group):
                return failed("schema", "FIELD_MISSING", f"a {call.kind} task needs {' or '.join(group)}")
        return await found.run(call)

    async def close(self) -> None:
        """Let go of every tool that was made."""
        for made in self._made.values():
            await made.close()
        self._made.clear()


def tool(kind: str, *, side_effecting: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a tool: its parameters are the task's input, what it returns is the result."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _user_tools[kind] = _FunctionTool(kind, function, side_effecting)
        return function

    return register


class _FunctionTool:
    rendering: Mapping[str, Rendering] = {}
    required: tuple[tuple[str, ...], ...] = ()

    def __init__(self, kind: str, function: Callable[..., Any], side_effecting: bool) -> None:
        self.kind = kind
        self._function = function
        self._side_effecting = side_effecting

    def side_effecting(self, fields: Json) -> bool:
        return self._side_effecting

    async def run(self, call: Call) -> Outcome:
        import asyncio

        try:
            if inspect.iscoroutinefunction(self._function):
                return ok(await self._function(**call.input))
            return ok(await asyncio.to_thread(self._function, **call.input))
        except Exception as error:  # whatever a user's function raises is the task's error
            return failed("transform", f"PY_{type(error).__name__}", str(error))

    async def close(self) -> None:
        """Nothing to let go of."""


def _built_in(kind: str, options: Json) -> Tool | None:
    if kind not in BUILT_IN:
        return None
    module, _, name = BUILT_IN[kind].partition(":")
    made: Tool = getattr(importlib.import_module(module), name)(**options)
    return made


def _from_entry_point(kind: str) -> Tool | None:
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS, name=kind):
        made: Tool = entry.load()()
        return made
    return None
