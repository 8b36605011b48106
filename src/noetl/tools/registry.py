"""Which kinds there are, and where each is to be found."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import Unavailable
from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, Tool, failed, ok

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from noetl.payloads.resolver import Resolver

__all__ = ["BUILT_IN", "INTERPRETED", "UNAVAILABLE", "KindUnavailable", "Options", "Registry", "UserKinds", "tool"]

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
    "spark": "the driver of a session; executors of Spark have none",
    "transfer": "a worker; executors of Spark have none",
    "nats": "the distributed runtime",
    "subscription": "subscriptions",
    "script": "batch jobs",
    "container": "batch jobs",
    "ducklake": "the ducklake extension",
    "snowflake": "the snowflake connector",
    "mcp": "the MCP gateway",
    "agent": "nothing: this kind is retired, call a playbook",
}
# Kinds that answer with what they have read from JSON, or have turned into it value by value.
_EXACT = frozenset({"http", "postgres", "noop"})
ENTRY_POINTS = "noetl.tools"
INTERPRETED = frozenset({"playbook", "workbook"})
"""Kinds that need no tool: whoever runs a pipeline gives them their meaning."""

Options = Json | Callable[[], Json]
"""What a tool is to be made with, or where to get it when that time has come."""

_user_tools: dict[str, Tool] = {}


class KindUnavailable(Unavailable):
    """A playbook insists on tools that cannot run here."""


class UserKinds(Collection[str]):
    """The kinds that users have added.

    Looking for entry points means reading the metadata of every package that is installed, some 20 ms. So a kind
    that the language knows is never looked for here, and nothing is read before somebody asks for another.
    """

    def __contains__(self, kind: object) -> bool:
        return kind in _user_tools or kind in _entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_user_tools.keys() | _entry_points().keys()))

    def __len__(self) -> int:
        return len(_user_tools.keys() | _entry_points().keys())


class Registry:
    """Tools by kind, made when first asked for. Users' tools come from `@noetl.tool` and from entry points.

    `options` are what a built-in kind is to be made with, by kind; `disabled` are kinds that are not to run here, each
    with the reason; `at_once` is how many tasks of a kind may run at the same time; `resolver` follows addresses for
    all of them; `makers` make kinds that rooms above this one bring.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool] | None = None,
        options: Mapping[str, Options] | None = None,
        disabled: Mapping[str, str] | None = None,
        at_once: Mapping[str, int] | None = None,
        resolver: Resolver | None = None,
        makers: Mapping[str, Callable[[], Tool]] | None = None,
    ) -> None:
        self._makers = dict(makers or {})
        self._made: dict[str, Tool] = dict(tools or {})
        self._options = dict(options or {})
        self._disabled = dict(disabled or {})
        self.resolver = resolver
        self._turns = {kind: asyncio.Semaphore(limit) for kind, limit in (at_once or {}).items()}

    def find(self, kind: str) -> Tool | None:
        """The tool of a kind, or None."""
        if kind in self._disabled:
            return None
        if kind not in self._made:
            made = self._make(kind)
            if made is None:
                return None
            self._made[kind] = made
        return self._made[kind]

    def _make(self, kind: str) -> Tool | None:
        if kind in self._makers and kind not in _user_tools:
            return self._makers[kind]()
        return _user_tools.get(kind) or _built_in(kind, self._options.get(kind, {})) or _from_entry_point(kind)

    def why_not(self, kind: str) -> str | None:
        """Why a kind cannot run here; None if it can. Nothing is made or imported to find out."""
        if kind in self._disabled:
            return self._disabled[kind]
        if kind in INTERPRETED or kind in self._made or kind in self._makers or kind in BUILT_IN:
            return None
        if kind in UNAVAILABLE and kind not in _user_tools:
            return f"it needs {UNAVAILABLE[kind]}"
        return None if kind in self.user_kinds() else f"it needs a tool of kind '{kind}'"

    def user_kinds(self) -> UserKinds:
        """The kinds that users have added, for whoever checks documents."""
        return UserKinds()

    def is_local(self, kind: str) -> bool:
        """Whether a kind is known to this process only, and to no other that has the same packages."""
        return kind in _user_tools and kind not in _entry_points()

    def is_exact(self, kind: str) -> bool:
        """Whether whatever a kind returns is JSON, so that nobody has to look."""
        return kind in _EXACT and kind not in _user_tools

    def is_keyed(self, kind: str) -> bool:
        """Whether a kind shows anybody the key of its effect, as far as it does not say otherwise."""
        return getattr(self.find(kind), "keyed", True)

    def side_effecting(self, kind: str, fields: Json) -> bool:
        """Whether running a task of this kind again could be noticed; true for what nobody knows."""
        found = self.find(kind)
        return found is None or found.side_effecting(fields)

    def turn(self, kind: str) -> contextlib.AbstractAsyncContextManager[None]:
        """What a task of a kind waits for before it runs."""
        return self._turns.get(kind) or contextlib.nullcontext()

    def run_in_turn(self, call: Call) -> Awaitable[Outcome]:
        """Run a call once its turn has come, within its time. Raises TimeoutError.

        A tool that keeps the time itself says more about what has taken so long.
        """
        found, turn = self.find(call.kind), self._turns.get(call.kind)
        limit = None if getattr(found, "keeps_time", False) else call.timeout
        if turn is None and limit is None:
            return self._started(found, call)
        return self._awaited(found, call, turn, limit)

    async def _awaited(
        self, found: Tool | None, call: Call, turn: asyncio.Semaphore | None, limit: float | None
    ) -> Outcome:
        async with turn or contextlib.nullcontext(), asyncio.timeout(limit):
            return await self._started(found, call)

    async def run(self, call: Call) -> Outcome:
        """Run a call with its tool; a kind nobody offers is an outcome like any other."""
        return await self._started(self.find(call.kind), call)

    def _started(self, found: Tool | None, call: Call) -> Awaitable[Outcome]:
        if found is None:
            why = self.why_not(call.kind) or f"it needs a tool of kind '{call.kind}'"
            return _at_once(failed("unknown", "KIND_UNAVAILABLE", f"kind '{call.kind}' cannot run here: {why}"))
        for group in found.required:
            if not _has_one(call, group):
                message = f"a {call.kind} task needs {' or '.join(group)}"
                return _at_once(failed("schema", "FIELD_MISSING", message))
        if self.resolver is not None and call.resolver is None:
            call = msgspec.structs.replace(call, resolver=self.resolver)
        return found.run(call)

    async def close(self) -> None:
        """Let go of every tool that was made."""
        for made in self._made.values():
            await made.close()
        self._made.clear()


async def _at_once(outcome: Outcome) -> Outcome:
    return outcome


def _has_one(call: Call, names: tuple[str, ...]) -> bool:
    for name in names:  # noqa: SIM110 - a generator for each call of each row takes longer
        if call.fields.get(name) is not None or call.input.get(name) is not None:
            return True
    return False


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
            inspect.signature(self._function).bind(**call.input)
        except TypeError as error:
            return failed("schema", "FIELD_INVALID", f"the input does not fit a {self.kind} task: {error}")
        try:
            if inspect.iscoroutinefunction(self._function):
                return ok(await self._function(**call.input))
            return ok(await asyncio.to_thread(self._function, **call.input))
        except Exception as error:  # whatever a user's function raises is the task's error
            return failed("transform", f"PY_{type(error).__name__}", str(error) or type(error).__name__)

    async def close(self) -> None:
        """Nothing to let go of."""


def _built_in(kind: str, options: Options) -> Tool | None:
    if kind not in BUILT_IN:
        return None
    module, _, name = BUILT_IN[kind].partition(":")
    given = options() if callable(options) else options
    made: Tool = getattr(importlib.import_module(module), name)(**given)
    return made


def _from_entry_point(kind: str) -> Tool | None:
    """What an entry point names: a class of tools, or a function that `@tool` has made one of."""
    if kind not in _entry_points():
        return None
    loaded = _entry_points()[kind].load()
    made: Tool = _user_tools[kind] if kind in _user_tools else loaded()
    return made


@functools.cache
def _entry_points() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
