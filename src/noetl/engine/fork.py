"""Forks: what a new execution takes over from an earlier one, and where it begins.

The harvest is gathered from the source's log. All of it is written into the fork's own stream, so nobody who
replays the fork ever has to read the source.
"""

from __future__ import annotations

import msgspec

from noetl.engine.control import Control, Move, StepState, Token
from noetl.engine.fact import Fact
from noetl.engine.folding import apply
from noetl.engine.routing import Graph
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.playbook.document import Playbook

__all__ = ["Adopted", "Fork", "Harvest", "is_entry"]

Recorded = Envelope | Fact

_OF_RUNS = ("command.", "step.", "call.", "loop.", "stage.")
_OF_LOOPS = ("loop_index", "loop_id")


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """A step run of the source that counts as done in the fork."""

    step: str
    state: StepState
    payload_ref: PayloadRef | None = None
    """Where the whole result is, when it was too large for its event; the fork refers to the same bytes."""
    unhandled: Json | None = None

    def payload(self, source: int) -> Json:
        """What the fork records of it."""
        state = self.state
        found: Json = {
            "run": state.run,
            "kind": state.kind,
            "event_name": state.event_name,
            "result": state.result,
            "source": {"execution_id": source, "event_id": state.result_event},
        }
        stage: Json = {}
        if state.stage_id:
            stage = {"execution_id": state.stage_execution or source, "stage_id": state.stage_id}
        more = {"error": state.error, "output": state.output, "unhandled": self.unhandled, "stage": stage}
        return {**found, **{name: value for name, value in more.items() if value}}


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that goes on from where another one stood when it last entered a step."""

    execution_id: int
    """The source."""
    event_id: int
    """The last event of the source that is taken into account, apart from those of branches beside the step."""
    step: str
    sender: str | None = None
    final: bool = False
    """The step runs after everything else, and nobody sends it a token."""
    ctx: Json = {}
    workload: Json = {}
    """Values that stand in the workload as they are."""
    steps: tuple[Adopted, ...] = ()
    warnings: tuple[str, ...] = ()

    def opening(self, said: Json) -> Json:
        """How the execution is introduced: as any other, and as a fork."""
        origin = {"execution_id": self.execution_id, "event_id": self.event_id, "step": self.step}
        return {**said, "workload": {**said["workload"], **self.workload}, "ctx": self.ctx, "forked_from": origin}


def is_entry(event: Recorded, step: str) -> bool:
    """True for the event with which a run of the step begins."""
    if event.node_name != step:
        return False
    match event.event_type:
        case "loop.opened":
            return True
        case "command.issued":
            return not any(name in event.payload for name in _OF_LOOPS)
        case "step.enter":
            return "run" in event.payload
    return False


class Harvest:
    """Gathers what a fork at a step takes over, from the events of the source in their order.

    `entry` is the event with which the step's last run began, or None for a step that never ran. Up to
    there everything counts. After it only branches that ran beside the step do: what they did does not
    follow from the step, and a join that waits for them must find their results. Whatever descends from
    the step is left out, for the fork will run it again.
    """

    def __init__(self, execution_id: int, playbook: Playbook, step: str, entry: int | None) -> None:
        self.control = Control(execution_id=execution_id)
        self._event_id = 0
        self._sender: str | None = None
        self._origin: str | None = None
        self._playbook = playbook
        self._step = step
        self._entry = entry
        self._final = entry is None and playbook.final_step == step
        self._graph = Graph(playbook)
        self._refs: dict[str, PayloadRef | None] = {}
        self._descends: set[str] = set()
        self._descending_tokens: set[str] = set()
        self._beside: dict[str, Token] = {}
        self._failing = False
        self._cut: dict[str, None] = {}

    def take(self, event: Recorded) -> None:
        """The next event of the source's own stream."""
        if self._entry is None or event.event_id < self._entry:
            apply(self.control, event)
            self._event_id = event.event_id
            self._note_reference(event)
        elif event.event_id == self._entry:
            self._divide(event)
        else:
            self._look_beside(event)

    def fork(self) -> Fork:
        """The fork, when all events were taken; the shell adds the large results."""
        steps = self._adopted()
        names = [one.step for one in steps]
        if self._entry is None:
            self._sender = self._last_before(names)
        return Fork(
            execution_id=self.control.execution_id,
            event_id=self._event_id,
            step=self._step,
            sender=self._sender if self._sender in names else None,
            final=self._final,
            ctx=self.control.ctx,
            steps=steps,
            warnings=self._warnings(),
        )

    def _adopted(self) -> tuple[Adopted, ...]:
        """The step runs that had ended, in the order in which they did.

        A failure that nobody handled is taken over for a final step alone, which runs because of it. How
        often a loop was fruitless is not: whoever retries has reason to hope.
        """
        failed = self.control.failed_step if self._final else None
        ended = [(name, state) for name, state in self.control.steps.items() if state.state == "ended"]
        return tuple(
            Adopted(
                step=name,
                state=state,
                payload_ref=self._refs.get(name),
                unhandled=self.control.failure if name == failed else None,
            )
            for name, state in sorted(ended, key=lambda item: item[1].result_event)
        )

    def _last_before(self, names: list[str]) -> str | None:
        """Who counts as the sender of a token to a step that never ran: the last with an arc to it, else the last."""
        ways = [name for name in names if self._step in self._graph.targets(name)]
        found = ways or names
        return found[-1] if found else None

    def _warnings(self) -> tuple[str, ...]:
        """Where branches beside the step had stopped. A token that waits where the fork will come by is no loss."""
        left = [
            token.step for token in self._beside.values() if token.state != "parked" or not self._comes_by(token.step)
        ]
        stopped = sorted({*self._cut, *left}, key=lambda name: self._graph.order.get(name, 0))
        if not stopped:
            return ()
        names = ", ".join(f"'{name}'" for name in stopped)
        again = f"; to run every branch again, begin at '{self._origin}'" if self._origin else ""
        said = f"a branch beside '{self._step}' had come to {names}, and is not gone on with{again}"
        return (said,)

    def _divide(self, event: Recorded) -> None:
        """The step is entered: from here on, what follows from it and what runs beside it are two things."""
        self._final = bool(event.payload.get("final")) and self._playbook.final_step == self._step
        self._descends.add(self._step)
        for name, token in self.control.tokens.items():
            if token.step != self._step or token.state != "running":
                self._beside[name] = token
                continue
            self._sender = token.sender
            self._origin = self.control.groups.get(token.groups[-1]) if token.groups else None
            self._descending_tokens.add(name)

    def _look_beside(self, event: Recorded) -> None:
        step = event.node_name or ""
        if event.payload.get("final"):
            self._descends.add(step)
        self._failing |= "unhandled" in event.payload
        if step not in self._descends and event.event_type.startswith(_OF_RUNS):
            self._take_beside(event, step)
        for move in msgspec.convert(event.payload.get("moves", []), list[Move]):
            self._follow(move, step)

    def _take_beside(self, event: Recorded, step: str) -> None:
        payload = {name: value for name, value in event.payload.items() if name not in ("moves", "unhandled")}
        apply(self.control, msgspec.structs.replace(event, payload=payload))
        self._note_reference(event)
        if event.event_type != "step.exit" or not self._failing:
            return
        if "unhandled" in event.payload:
            del self.control.steps[step]
            self._cut[step] = None
        elif not all(map(self._comes_by, self._graph.targets(step))):
            self._cut[step] = None  # the execution was failing, so no arc was looked at

    def _follow(self, move: Move, step: str) -> None:
        """Keep track of which tokens descend from the step; `step` is the one whose event has the move."""
        if move.op == "leave":
            gone = self._beside.pop(move.token, None)
            if gone is not None and gone.step != step and not self._comes_by(gone.step):
                self._cut[gone.step] = None  # it was dropped before it began
        if move.op not in ("enter", "park"):
            return
        for name in move.merged:
            self._beside.pop(name, None)
        if move.sender in self._descends or self._descending_tokens.intersection(move.merged):
            self._descending_tokens.add(move.token)
            if move.op == "enter":
                self._descends.add(move.step)
            return
        self._beside[move.token] = Token(move.step, move.groups, "running" if move.op == "enter" else "parked")
        if move.op == "enter":
            self._descends.discard(move.step)

    def _comes_by(self, step: str) -> bool:
        """Whether the fork's own token can come to a step."""
        return self._graph.reaches(self._step, step, "")

    def _note_reference(self, event: Recorded) -> None:
        step = event.node_name or ""
        state = self.control.steps.get(step)
        if state is not None and state.result_event == event.event_id:
            self._refs[step] = event.payload_ref
