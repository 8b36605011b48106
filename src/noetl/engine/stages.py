"""Data stages: what one is opened with, rendered once and checked, and what is said when it is closed.

A stage of a million rows is one command to the engine. Rows never come by here: a dataset is named, a result that is
kept elsewhere is referred to, and of frames there are only counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal

import msgspec

from noetl.engine.control import Control, StepState
from noetl.engine.outcome import failure
from noetl.engine.reads import looked_up
from noetl.engine.scope import Scope
from noetl.errors import NoetlError
from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.bounds import COUNT, FANOUT_ROWS, FANOUT_SLOTS, FRAME, PARTITIONS, SLOTS, Bound
from noetl.playbook.document import Cursor, Frame, Loop, Reduce, Step, Task
from noetl.playbook.words import SOURCES

__all__ = ["NO_ROWS", "Stage", "StageRefused", "stage_of"]

StageKind = Literal["loop", "fanout", "reduce", "transfer"]

NO_ROWS = {"total": 0, "success": 0, "failed": 0}
_WHOLE_FRAMES = Frame(max_rows=FANOUT_ROWS, process="frame")
"""Bounds of a reduce or a transfer, for which the language has none."""


class StageRefused(Exception):
    """A stage cannot be opened. The step run fails with this error, and never runs over nothing instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.error = failure(code, message, kind="schema")


class Stage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `stage.opened` says. Nothing in it is looked at again by the engine."""

    kind: StageKind
    loop_id: str | None = None
    frame_policy: Json
    slots: int
    failure: str
    engine: str
    source: Json
    parent_stage_id: int | None = None


def stage_of(step: Step, run: int, control: Control, scope: Scope, host: templates.Host) -> Stage:
    """The stage that a run of the step is. Raises StageRefused."""
    kind = step.stage_kind
    assert kind is not None
    reader = _Reader(step, control, scope, host)
    if step.reduce is not None:
        source, parent = reader.groups(step.reduce)
        return Stage(kind=kind, frame_policy=reader.policy(_WHOLE_FRAMES), slots=FANOUT_SLOTS, failure="fail_at_end",
                     engine="auto", source=source, parent_stage_id=parent)  # fmt: skip
    if step.loop is None:
        (task,) = step.tasks
        parts = reader.split(task.fields.get("partitions"), task.fields.get("by"))
        slots = min(FANOUT_SLOTS, parts.get("partitions", FANOUT_SLOTS))
        return Stage(kind=kind, frame_policy=reader.policy(_transfer_frames(task)), slots=slots, failure="fail_fast",
                     engine="worker", source={"transfer": parts})  # fmt: skip
    loop = step.loop
    source, parent = reader.cursor(loop.cursor) if loop.cursor is not None else reader.dataset(loop)
    return Stage(
        kind=kind,
        loop_id=f"{step.name}/{run}",
        frame_policy=reader.policy(loop.frame),
        slots=reader.number(loop.max_in_flight, "loop.spec.max_in_flight", SLOTS),
        failure=loop.failure,
        engine=loop.engine,
        source=source,
        parent_stage_id=parent,
    )


def _transfer_frames(task: Task) -> Frame:
    """Rows are moved in chunks of so many."""
    chunk = task.fields.get("chunk_size")
    return _WHOLE_FRAMES if chunk is None else msgspec.structs.replace(_WHOLE_FRAMES, max_rows=chunk)


_Source = tuple[Json, int | None]
"""A source, and the stage whose frames it reads, if it reads some."""


class _Reader:
    """Renders the settings of one step when it is entered."""

    def __init__(self, step: Step, control: Control, scope: Scope, host: templates.Host) -> None:
        self._step = step
        self._control = control
        self._scope = scope
        self._host = host

    def policy(self, frame: Frame) -> Json:
        """The bounds of frames, every one in its final type."""
        said = {name: self.number(getattr(frame, name), f"frame.{name}", bound) for name, bound in FRAME.items()}
        if said["heartbeat_seconds"] >= said["lease_seconds"]:
            beat, lease = said["heartbeat_seconds"], said["lease_seconds"]
            raise self._refused("INVALID", f"frame.heartbeat_seconds: {beat:g} must be below lease_seconds, {lease:g}")
        return said

    def number(self, value: Any, field: str, bound: Bound) -> Any:
        """A setting, which may be a template. Raises StageRefused."""
        try:
            return bound.read(templates.render_value(value, self._scope.names_for(value), host=self._host))
        except templates.TemplateError as problem:
            raise self._refused(problem.code, f"{field}: {problem}") from None
        except NoetlError as problem:
            raise self._refused("INVALID", f"{field}: {problem}") from None

    def split(self, partitions: Any, by: Any) -> Json:
        """How a dataset is to be cut, as far as that is said."""
        parts: Json = {}
        if partitions is not None:
            parts["partitions"] = self.number(partitions, "partitions", PARTITIONS)
        if by:
            parts["by"] = [by] if isinstance(by, str) else list(by)
        return parts

    # --- Where rows come from

    def cursor(self, cursor: Cursor) -> _Source:
        """A work queue. `auth` and `claim` stay as they were written: each slot renders them for itself."""
        said: Json = {"kind": cursor.kind, "auth": cursor.auth, "claim": cursor.claim}
        if cursor.max_iterations is not None:
            said["max_iterations"] = self.number(cursor.max_iterations, "cursor.options.max_iterations", COUNT)
        if cursor.options:
            said["options"] = cursor.options
        return {"cursor": said}, None

    def dataset(self, loop: Loop) -> _Source:
        """What a fan-out runs over."""
        path = looked_up(loop.items)
        parent = self._stage_read(path)
        stored = self._stored(path)
        found = stored if stored is not None else _named(self._rendered(loop.items))
        if found is None:
            names = ", ".join(SOURCES)
            raise self._refused("STAGE_INPUT", "`in` names no dataset: give a reference such as {{ step.ref }}, an "
                                f"address, a list, or a mapping with one of {names}")  # fmt: skip
        return {"input": found, **self.split(loop.partitions, loop.by)}, parent

    def groups(self, reduce: Reduce) -> _Source:
        """What a reduce runs over: the frames of the last run of another step, or the dataset it has made."""
        state = self._control.steps.get(reduce.source)
        if state is None or state.state != "ended":
            raise self._refused("STAGE_INPUT", f"reduce.from: step '{reduce.source}' has not run")
        said: Json = {"step": reduce.source}
        if state.stage_id:
            said["stage_id"] = state.stage_id
        if state.stage_execution:
            said["execution_id"] = state.stage_execution
        reference = self._reference_of(reduce.source)
        if reference is not None:
            said["input"] = reference
        elif not state.stage_id:
            raise self._refused("STAGE_INPUT", f"reduce.from: the result of step '{reduce.source}' has no `ref`")
        return {"groups": said, "by": list(reduce.by)}, self._own_stage(state)

    def _rendered(self, value: Any) -> Any:
        """Strictly: a name that is not there must not be taken for a dataset without rows."""
        try:
            return templates.render_strict(value, self._scope.names_for(value), host=self._host)
        except templates.TemplateError as problem:
            raise self._refused(problem.code, f"`in`: {problem}") from None

    def _stored(self, path: tuple[str, ...] | None) -> Json | None:
        """A result that is kept elsewhere and is to be run over as it is; the shell adds its `ref`."""
        if path is None or not self._scope.is_kept_elsewhere(path):
            return None
        return {"step": path[0], "path": list(path[1:])}

    def _reference_of(self, step: str) -> Any:
        result = self._scope.raw_result(step)
        found = result.get("ref") if isinstance(result, Mapping) else None
        return found if _is_reference(found) else None

    def _stage_read(self, path: tuple[str, ...] | None) -> int | None:
        state = self._control.steps.get(path[0]) if path else None
        return None if state is None or state.state != "ended" else self._own_stage(state)

    def _own_stage(self, state: StepState) -> int | None:
        return state.stage_id if state.stage_id and not state.stage_execution else None

    def _refused(self, code: str, message: str) -> StageRefused:
        return StageRefused(code, f"step '{self._step.name}': {message}")


def _named(value: Any) -> Any:
    """The dataset that a value of `in` stands for: rows, a reference, a name, or a mapping of a source; None if none.

    Text is the name of one, unless it spells a list in JSON. A mapping with the `ref` of a result, such as the result
    of another stage, stands for what that refers to. A `step` in the mapping of a source is the engine's own word.
    """
    if isinstance(value, str):
        return _spelled(value.strip()) if value.strip() else None
    if isinstance(value, Mapping):
        if value.get("kind") == "result_ref":
            return dict(value)
        if _is_reference(value.get("ref")):
            return _named(value["ref"])
        if isinstance(value.get("rows"), list) and "columns" in value:
            return value["rows"]
        return dict(value) if sum(name in value for name in SOURCES) == 1 and "step" not in value else None
    return list(value) if isinstance(value, Sequence | Set) else None


def _spelled(text: str) -> Any:
    if not text.startswith("["):
        return text
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return found if isinstance(found, list) else text


def _is_reference(value: Any) -> bool:
    """Whether a value refers to a dataset: in full, or by its name alone."""
    if isinstance(value, Mapping):
        return value.get("kind") == "result_ref"
    return isinstance(value, str) and value.startswith("noetl://")
