"""The board: which steps run, which have ended and how, as far as somebody who looks wants to know.

Every event and every notice changes it in constant time; what has ended is counted and soon forgotten, so it stays
small however long the run is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl.kernel.time import parse_time
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type

if TYPE_CHECKING:
    from noetl.kernel.event import Envelope
    from noetl.runtime.notices import Notice

__all__ = ["Board", "Counter", "EndedStep", "Run", "StepRun"]

_RECENT = 64
_FAILURES = 8
_CALLS = ("playbook", "pipeline")


@dataclass(slots=True)
class Counter:
    """How far something that repeats has come. Without a total nobody knows how much there is."""

    unit: str
    total: int | None
    done: int = 0
    failed: int = 0
    rows: int = 0
    rows_failed: int = 0
    bytes: int = 0
    again: int = 0
    """Frames that were lost with whoever ran them, and are run again."""
    done_before: int = 0
    rows_before: int = 0
    """What was done before we looked, which says nothing about how fast it goes."""


@dataclass(slots=True)
class StepRun:
    """A step that runs."""

    name: str
    kind: str
    begun: float
    begun_at: str
    counter: Counter | None = None
    attempt: int = 1
    attempts: int | None = None
    most_attempts: int = 1
    waiting_until: float | None = None
    log: str = ""
    error: str = ""
    ui: str = ""
    """Where somebody can watch it: the Spark UI."""
    called: dict[int, Run] = field(default_factory=dict)


@dataclass(slots=True)
class EndedStep:
    """A step that has ended. `depth` counts the calls around it."""

    name: str
    state: str
    took_ms: int
    depth: int
    counter: Counter | None = None
    attempts: int = 1
    error: str = ""


@dataclass(slots=True)
class Run:
    """One execution."""

    execution_id: int
    path: str
    begun: float
    depth: int = 0
    caller: Run | None = None
    steps: dict[str, StepRun] = field(default_factory=dict)
    called: dict[int, Run] = field(default_factory=dict)
    """Executions of which nobody has said yet which step called them."""
    counts: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "skipped": 0})
    recent: deque[EndedStep] = field(default_factory=lambda: deque(maxlen=_RECENT))
    failures: deque[EndedStep] = field(default_factory=lambda: deque(maxlen=_FAILURES))
    ended: str | None = None
    ended_after: float = 0.0


class Board:
    """What is going on. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs: dict[int, Run] = {}
        self._places: dict[int, tuple[int, str]] = {}
        self._handlers: dict[str, Callable[[Run, Envelope], EndedStep | None]] = {
            "command.issued": self._issued,
            "command.suspended": self._suspended,
            "command.completed": self._counted,
            "command.failed": self._counted,
            "command.cancelled": self._dropped,
            "call.error": self._errored,
            "loop.opened": self._loop_opened,
            "stage.opened": self._stage_opened,
            "frame.dispatched": self._dispatched,
            "frame.committed": self._framed,
            "frame.failed": self._framed,
            "frame.abandoned": self._abandoned,
            "stage.started": self._placed,
            "step.exit": self._exited,
            "step.skipped": self._skipped,
        }
        self.root: Run | None = None

    def apply(self, event: Envelope) -> EndedStep | None:
        """Put an event on the board; the step that it ends, if it ends one."""
        if event.execution_id is None:
            return None
        kind = canonical_type(event.event_type)
        handler = self._handlers.get(kind)
        run = self._runs.get(event.execution_id)
        if run is None:
            if (handler is None or kind == "command.cancelled") and kind != "playbook.initialized":
                return None  # what is left to say about an execution that has ended
            run = self._open(event)
        if kind in TERMINAL_TYPES:
            self._end(run, TERMINAL_TYPES[kind])
        return handler(run, event) if handler is not None else None

    def recall(self) -> None:
        """All that was applied so far happened before we looked: what goes on begins now."""
        for run in self._runs.values():
            run.begun = self._clock()
            for step in run.steps.values():
                step.begun = self._clock()
                if step.counter is not None:
                    step.counter.done_before, step.counter.rows_before = step.counter.done, step.counter.rows

    def hear(self, notice: Notice) -> None:
        """Put what a worker says on the board."""
        run = self._runs.get(notice.execution_id)
        if run is None:
            return
        step = run.steps.get(notice.step)
        if step is None and run.ended is not None:
            return
        if step is None:  # taken up again after an interruption: it was issued before we looked
            step = run.steps[notice.step] = StepRun(notice.step, "", self._clock(), "")
        if notice.what == "log":
            step.log = _last_line(notice.text) or step.log
            return
        step.attempt, step.attempts = notice.attempt, notice.attempts
        step.most_attempts = max(step.most_attempts, notice.attempt)
        step.waiting_until = self._clock() + notice.seconds if notice.what == "waiting" else None

    def _open(self, event: Envelope) -> Run:
        execution_id = event.execution_id or 0
        run = Run(execution_id, str(event.payload.get("path", "")), self._clock())
        self._runs[execution_id] = run
        caller = self._runs.get(event.parent_execution_id or 0)
        if caller is not None:
            run.caller, run.depth = caller, caller.depth + 1
            self._below(caller, execution_id)[execution_id] = run
        elif self.root is None:
            self.root = run
        return run

    def _below(self, caller: Run, execution_id: int) -> dict[int, Run]:
        """Where in its caller a call is shown: below the step that made it, once that is known."""
        _, name = self._places.get(execution_id, (0, ""))
        calling = (
            [caller.steps[name]] if name in caller.steps else [s for s in caller.steps.values() if s.kind in _CALLS]
        )
        return calling[0].called if len(calling) == 1 else caller.called

    def _end(self, run: Run, status: str) -> None:
        """Steps that were running when it was cancelled are left on the board: they may finish."""
        run.ended, run.ended_after = status, self._clock() - run.begun
        if run.caller is None:
            return
        del self._runs[run.execution_id]
        self._places.pop(run.execution_id, None)
        run.caller.called.pop(run.execution_id, None)
        for step in run.caller.steps.values():
            step.called.pop(run.execution_id, None)

    def _step(self, run: Run, event: Envelope, kind: str) -> StepRun:
        name = event.node_name or ""
        step = run.steps.get(name)
        if step is None:
            step = run.steps[name] = StepRun(name, kind, self._clock(), event.event_time)
        step.kind = step.kind or kind
        return step

    def _issued(self, run: Run, event: Envelope) -> None:
        self._step(run, event, str(event.payload.get("kind", "")))
        self._place(run, event)

    def _suspended(self, run: Run, event: Envelope) -> None:
        self._step(run, event, "")
        self._place(run, event)

    def _place(self, run: Run, event: Envelope) -> None:
        child, name = event.payload.get("child_execution_id"), event.node_name or ""
        if not isinstance(child, int):
            return
        self._places[child] = (run.execution_id, name)
        if child in self._runs:
            for others in (run.called, *(step.called for step in run.steps.values())):
                others.pop(child, None)
            run.steps[name].called[child] = self._runs[child]

    def _loop_opened(self, run: Run, event: Envelope) -> None:
        step = self._step(run, event, "")
        step.counter = Counter("iteration", _number(event.payload.get("total")))

    def _stage_opened(self, run: Run, event: Envelope) -> None:
        self._step(run, event, "").counter = Counter("frame", None)

    def _dispatched(self, run: Run, event: Envelope) -> None:
        """What a stage runs over is known with its first frame; of a cursor nobody ever knows."""
        step, total = run.steps.get(event.node_name or ""), event.payload.get("frames")
        if step is not None and step.counter is not None and isinstance(total, int):
            step.counter.total = max(total, step.counter.total or 0)

    def _counted(self, run: Run, event: Envelope) -> None:
        step = run.steps.get(event.node_name or "")
        if step is not None and step.counter is not None and step.counter.unit == "iteration":
            _count(step.counter, failed=event.event_type == "command.failed")

    def _dropped(self, run: Run, event: Envelope) -> None:
        run.steps.pop(event.node_name or "", None)

    def _framed(self, run: Run, event: Envelope) -> None:
        step = run.steps.get(event.node_name or "")
        if step is not None and step.counter is not None and step.counter.unit == "frame":
            failed = event.event_type == "frame.failed"
            _count(step.counter, failed=failed)
            rows = _number(event.payload.get("rows", event.payload.get("row_count")))
            outcomes = event.payload.get("outcomes")
            step.counter.rows += rows
            step.counter.rows_failed += rows if failed else _number((outcomes or {}).get("error"))
            step.counter.bytes += event.payload_ref.bytes if event.payload_ref is not None and not failed else 0

    def _abandoned(self, run: Run, event: Envelope) -> None:
        step = run.steps.get(event.node_name or "")
        if step is not None and step.counter is not None:
            step.counter.again += 1

    def _placed(self, run: Run, event: Envelope) -> None:
        """Slots of a stage begin somewhere; on Spark it is said where to watch them."""
        step, ui = run.steps.get(event.node_name or ""), event.payload.get("ui")
        if step is not None and isinstance(ui, str):
            step.ui = ui

    def _errored(self, run: Run, event: Envelope) -> None:
        step = run.steps.get(event.node_name or "")
        error: Any = event.payload.get("error")
        if step is not None and isinstance(error, dict):
            step.error = str(error.get("message", ""))

    def _exited(self, run: Run, event: Envelope) -> EndedStep:
        name = event.node_name or ""
        step = run.steps.pop(name, None)
        took = parse_time(event.event_time) - parse_time((step and step.begun_at) or event.event_time)
        state = "failed" if event.status == "FAILED" else "ok"
        return self._keep(run, EndedStep(
            name, state, took // 1000, run.depth,
            counter=step.counter if step else None,
            attempts=step.most_attempts if step else 1,
            error=step.error if step and state == "failed" else "",
        ))  # fmt: skip

    def _skipped(self, run: Run, event: Envelope) -> EndedStep:
        return self._keep(run, EndedStep(event.node_name or "", "skipped", 0, run.depth))

    def _keep(self, run: Run, ended: EndedStep) -> EndedStep:
        run.counts[ended.state] += 1
        run.recent.append(ended)
        if ended.state == "failed":
            run.failures.append(ended)
        return ended


def _count(counter: Counter, *, failed: bool) -> None:
    counter.done += 1
    counter.failed += failed


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _last_line(text: str) -> str:
    return next((line for line in reversed(text[-2000:].split("\n")) if line.strip()), "")
