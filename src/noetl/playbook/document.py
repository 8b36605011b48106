"""What a valid document says, in the one form the rest of the system reads.

Older spellings, short forms and defaults are already resolved: the engine never asks how something was
written, only what it means. Everything is plain data that survives a round trip through JSON. A value
that may be a template is kept as the author wrote it; a literal is already a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from noetl.playbook.builder import Builder

__all__ = [
    "AdmitRule",
    "Arc",
    "Cursor",
    "Dispatch",
    "Document",
    "Executor",
    "Frame",
    "KeychainEntry",
    "Loop",
    "Metadata",
    "Output",
    "Playbook",
    "Position",
    "Positions",
    "Reduce",
    "Router",
    "Rule",
    "Select",
    "Step",
    "Subscription",
    "Task",
    "WorkbookEntry",
    "pointer",
]


class Position(NamedTuple):
    """A place in a file, counted from 1."""

    line: int
    column: int


def pointer(*path: str | int) -> str:
    """The name of a place inside a document: `pointer("workflow", 2, "tool")` is `/workflow/2/tool`.

    A first part that is a pointer already is continued, so `pointer(task.at, "code")` works.
    """
    start, rest = ("", path)
    if path and isinstance(path[0], str) and path[0].startswith("/"):
        start, rest = path[0], path[1:]
    return start + "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in rest)


class Positions(msgspec.Struct, frozen=True, eq=False):
    """Where each value of a document stands in its file.

    Two documents that say the same are equal wherever they were written, so positions never differ.
    """

    places: dict[str, tuple[int, int, int]] = {}
    """Pointer -> line, column, and the line on which a text's first line stands."""

    def find(self, *path: str | int) -> Position:
        """The place of a value, or of the nearest thing around it that was written down."""
        line, column, _ = self._nearest(pointer(*path))
        return Position(line, column)

    def line_in(self, line: int, *path: str | int) -> int:
        """The line of the file that holds line `line`, from 1, of a text such as `code`."""
        return self._nearest(pointer(*path))[2] + max(line, 1) - 1

    def _nearest(self, place: str) -> tuple[int, int, int]:
        while place and place not in self.places:
            place = place.rpartition("/")[0]
        return self.places.get(place, (1, 1, 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions)

    def __hash__(self) -> int:
        return 0


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a document."""


class Metadata(_Part, frozen=True, kw_only=True):
    """Who the document is. `path` is the catalog key, without outer slashes."""

    name: str
    path: str
    version: Any = None
    description: str = ""
    labels: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    exposed_in_ui: bool = False
    exposes_as_mcp: bool = False
    agent: bool = False
    capabilities: tuple[str, ...] = ()
    extra: dict[str, Any] = {}


class Placement(_Part, frozen=True, kw_only=True):
    """Where commands want to run. None means not said here."""

    prefer_node: str | None = None
    prefer_zone: str | None = None
    max_distance: Literal["node", "zone", "region", "any"] | None = None
    labels: dict[str, str] = {}


class Executor(_Part, frozen=True, kw_only=True):
    """Where and under which limits a playbook wants to run."""

    profile: Literal["local", "distributed", "auto"] = "auto"
    version: str | None = None
    requires_tools: tuple[str, ...] = ()
    requires_features: tuple[str, ...] = ()
    requires_labels: dict[str, str] = {}
    placement: Placement = Placement()
    entry_step: str | None = None
    final_step: str | None = None
    no_next_is_error: bool = False
    default_timeout: float | str | None = None
    reference_first: bool = False
    max_payload_bytes: int | None = None
    spark: dict[str, Any] = {}


class KeychainEntry(_Part, frozen=True, kw_only=True):
    """A secret by name: what kind it is and what that kind needs to find it."""

    name: str
    kind: str
    scope: Literal["local", "shared", "catalog", "global"] = "global"
    auto_renew: bool = False
    fields: dict[str, Any] = {}
    at: str = ""


class Select(_Part, frozen=True, kw_only=True):
    """A field that stays readable inline after its result has moved to storage."""

    path: str
    name: str | None = None


class Output(_Part, frozen=True, kw_only=True):
    """How a result is stored. None means not said here, so that a step's word can stand over its task's."""

    store: str | None = None
    inline_max_bytes: int | str | None = None
    select: tuple[Select, ...] | None = None
    scope: Literal["step", "execution", "workflow", "permanent"] | None = None
    name: str | None = None
    accumulate: bool | None = None
    fields: dict[str, Any] = {}
    """What the kind of tool defines, such as `format` and `resource` of a spark task."""

    def over(self, other: Output) -> Output:
        """What holds when this is said on a step and `other` on its task."""
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) not in (None, {})}
        return msgspec.structs.replace(other, **{**said, "fields": {**other.fields, **self.fields}})


class Rule(_Part, frozen=True, kw_only=True):
    """What to do after an attempt. A `when` of None always matches."""

    when: Any = None
    do: Literal["continue", "retry", "jump", "break", "fail"]
    attempts: int | str = 3
    backoff: Literal["none", "linear", "exponential"] = "none"
    delay: float | str | None = None
    to: str | None = None
    set: dict[str, Any] = {}


class Task(_Part, frozen=True, kw_only=True):
    """One tool call. `fields` holds what only this kind knows: `code`, `url`, `command`, ..."""

    name: str
    kind: str
    input: dict[str, Any] = {}
    auth: Any = None
    set: dict[str, Any] = {}
    output: Output = Output()
    fields: dict[str, Any] = {}
    rules: tuple[Rule, ...] = ()
    timeout: float | str | None = None
    side_effecting: bool | None = None
    """None: as the kind says."""
    at: str = ""
    """Pointer to the task in the document, for `Playbook.position`."""


class WorkbookEntry(_Part, frozen=True, kw_only=True):
    """A task that other tasks call by name."""

    name: str
    desc: str = ""
    task: Task
    expects: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()


class AdmitRule(_Part, frozen=True, kw_only=True):
    """Whether a token may enter. A `when` of None always matches."""

    when: Any = None
    allow: bool


class Cursor(_Part, frozen=True, kw_only=True):
    """Where a cursor loop claims its rows."""

    kind: str = "postgres"
    auth: Any
    claim: str
    max_iterations: int | str | None = None
    options: dict[str, Any] = {}


class Frame(_Part, frozen=True, kw_only=True):
    """The rows taken and committed together. Text is a template, checked after rendering (`bounds.FRAME`)."""

    max_rows: int | str = 1
    max_seconds: float | str = 30.0
    max_bytes: int | str = 64 * 2**20
    lease_seconds: float | str = 120.0
    heartbeat_seconds: float | str = 30.0
    row_concurrency: int | str = 1
    process: str = "row"
    max_attempts: int | str = 3
    retry_mode: str = "whole_frame"
    verify_ipc: bool | str = False


class Loop(_Part, frozen=True, kw_only=True):
    """How a step repeats. `items` is what the document calls `in`; exactly one of it and `cursor` is there."""

    iterator: str
    mode: Literal["sequential", "parallel", "cursor", "fanout"] = "sequential"
    items: Any = None
    cursor: Cursor | None = None
    max_in_flight: int | str = 1
    placement: Literal["local", "distributed"] | None = None
    failure: Literal["fail_fast", "fail_at_end", "best_effort"] = "fail_at_end"
    frame: Frame = Frame()
    engine: Literal["auto", "spark", "worker"] = "auto"
    partitions: int | str | None = None
    by: tuple[str, ...] = ()


class Reduce(_Part, frozen=True, kw_only=True):
    """Groups of the frame outputs of the step `source`; without `by`, one group of them all."""

    source: str
    by: tuple[str, ...] = ()


class Arc(_Part, frozen=True, kw_only=True):
    """A way to another step. A `when` of None matches a step that succeeded."""

    step: str
    when: Any = None
    set: dict[str, Any] = {}


class Router(_Part, frozen=True, kw_only=True):
    """Which ways are taken when a step has ended."""

    mode: Literal["exclusive", "inclusive"] = "exclusive"
    on_no_match: Literal["complete", "quiet"] = "complete"
    arcs: tuple[Arc, ...] = ()


class Step(_Part, frozen=True, kw_only=True):
    """One stop of a token. `router` is None on a leaf."""

    name: str
    desc: str = ""
    input: dict[str, Any] = {}
    timeout: float | str | None = None
    placement: Placement = Placement()
    admit: tuple[AdmitRule, ...] = ()
    loop: Loop | None = None
    reduce: Reduce | None = None
    tasks: tuple[Task, ...]
    pipeline: bool = False
    """Whether the result is a pipeline's: the tool is a list, or its only task has rules or `set`."""
    output: Output = Output()
    set: dict[str, Any] = {}
    router: Router | None = None
    at: str = ""
    """Pointer to the step in the document, for `Playbook.position`."""

    @property
    def stage_kind(self) -> Literal["loop", "fanout", "reduce", "transfer"] | None:
        """What kind of stage runs this step in frames, on whatever host; None for one that is control flow.

        A transfer with rules or inside of a pipeline or loop is a tool like any other.
        """
        if self.reduce is not None:
            return "reduce"
        if self.loop is not None:
            kinds: dict[str, Literal["loop", "fanout"]] = {"cursor": "loop", "fanout": "fanout"}
            return kinds.get(self.loop.mode)
        return "transfer" if self.tasks[0].kind == "transfer" and not self.pipeline else None

    @property
    def is_data_stage(self) -> bool:
        """Whether Spark may carry this step: a cursor, fan-out or reduce, or one spark task."""
        if self.reduce is not None:
            return True
        if self.loop is not None:
            return self.loop.mode in ("cursor", "fanout") and self.loop.engine != "worker"
        return len(self.tasks) == 1 and self.tasks[0].kind == "spark"


class Playbook(_Part, frozen=True, kw_only=True, tag="Playbook"):
    """A valid playbook. `steps`, `workload` and `keychain` keep the order of the document."""

    path: str
    name: str
    api_version: str = "noetl.io/v2"
    metadata: Metadata
    executor: Executor = Executor()
    keychain: tuple[KeychainEntry, ...] = ()
    workload: dict[str, Any] = {}
    workbook: dict[str, WorkbookEntry] = {}
    steps: dict[str, Step]
    entry: str
    final_step: str | None = None
    no_next_is_error: bool = False
    spec: dict[str, Any] | None = None
    """The older root mapping `spec`, readable as the name `spec`."""
    extra: dict[str, Any] = {}
    """Root keys that nobody knows: kept and ignored."""
    positions: Positions = Positions()

    @staticmethod
    def builder(name: str = "generated", path: str | None = None) -> Builder:
        """Write a playbook in Python."""
        from noetl.playbook.builder import Builder

        return Builder(name, path)

    def position(self, *path: str | int) -> Position:
        """Where something stands: `position("workflow", 2, "tool", "code")` or `position(task.at, "code")`."""
        return self.positions.find(*path)

    def line_in(self, line: int, *path: str | int) -> int:
        """The line of the file that holds line `line`, from 1, of a text such as `code`."""
        return self.positions.line_in(line, *path)

    def to_dict(self) -> dict[str, Any]:
        """The document as it would be written today; parsing it gives an equal document."""
        from noetl.playbook.writing import to_dict

        return to_dict(self)

    def to_yaml(self) -> str:
        """The same as YAML text."""
        from noetl.playbook.writing import to_yaml

        return to_yaml(self)


class Dispatch(_Part, frozen=True, kw_only=True):
    """What a message starts."""

    playbook: str
    payload_from: Literal["message.json", "message.body", "message.attributes"] = "message.json"
    execution_pool: str | None = None
    batch_dispatch: bool = False
    batch_max: int = 100


class Subscription(_Part, frozen=True, kw_only=True, tag="Subscription"):
    """A valid subscription: its head, and all of its `spec` as written."""

    path: str
    name: str
    api_version: str = "noetl.io/v1"
    metadata: Metadata
    source: Literal["nats", "kafka", "pubsub", "webhook"]
    mode: Literal["pull", "push"]
    activation: Literal["continuous", "scheduled"] = "continuous"
    cadence: str | None = None
    auth: Any = None
    dispatch: Dispatch
    spec: dict[str, Any] = {}
    positions: Positions = Positions()

    def position(self, *path: str | int) -> Position:
        """Where something stands in the file."""
        return self.positions.find(*path)


Document = Playbook | Subscription
