"""The names a template sees when the engine evaluates it, in the order of the language reference, 6.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from noetl.engine.control import Control, StepState
from noetl.engine.outcome import step_output
from noetl.engine.reads import reads_more
from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.templates import EventName, External, ResultView

__all__ = ["IDENTITY", "Known", "LazyResults", "Scope", "external_of", "whole_result"]

IDENTITY = ("execution_id", "catalog_id", "job", "parent_execution_id", "server_url")
"""Names that nothing shadows."""

_ENDED = frozenset({"event", "output", "result", "response", "error", "step"})
"""What is said about a step that has just ended; put together when a template asks for it."""

_MISSING = object()


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell has looked up for a decision. The engine itself never waits for anything."""

    now: str
    results: Mapping[str, Any] = {}
    """Results by step that are too large for control state, for the names that templates use."""
    env: Mapping[str, str] = {}
    server_url: str | None = None
    items: Mapping[str, Sequence[Any]] = {}
    """The collections of loops in flight, by step."""
    loop_results: Sequence[Any] | None = None
    """The results of all iterations, by index, when this report is a loop's last."""


class LazyResults(Sequence[Any]):
    """Results that are not in memory; they are read when they are asked for."""

    reference: Json | None = None
    """What their event will say about where they are, if they are going to be kept outside of it."""


class Scope:
    """Names by layer. Only those a template uses are put together for it.

    `ended` is the step whose end is being looked at; `sender` the one that sent the token to where a task
    runs now; `entering` a step about to run again, whose last result is cleared by that.
    """

    def __init__(
        self,
        control: Control,
        known: Known,
        *,
        ended: str | None = None,
        sender: str | None = None,
        entering: str | None = None,
    ) -> None:
        self._control = control
        self._known = known
        self._entering = entering
        self._ended = ended
        self._sender = sender

    @cached_property
    def _special(self) -> dict[str, Any]:
        """Names before all others; put together for the first that is asked for: most decisions ask for none."""
        control, sender = self._control, self._sender
        special: dict[str, Any] = {
            "ctx": control.ctx,
            "workload": control.workload,
            "env": self._known.env,
            **_identity(control, self._known),
        }
        if self._ended is None and sender is not None:
            special["result"] = special["response"] = self._result(sender, control.steps[sender])
        return special

    def names_for(self, value: Any) -> dict[str, Any]:
        """What the templates inside a value can read."""
        found = {}
        for name in _roots(value):
            item = self.get(name)
            if item is not _MISSING:
                found[name] = item
        return found

    def get(self, name: str) -> Any:
        """The first layer that has the name wins."""
        if name in self._special:
            return self._special[name]
        if self._ended is not None and name in _ENDED:
            self._special[name] = self._about_ended(self._ended, name)
            return self._special[name]
        state = self._control.steps.get(name)
        if state is not None and state.state == "ended" and name != self._entering:
            return self._result(name, state)
        for layer in (self._control.ctx, self._control.workload):
            if name in layer:
                return layer[name]
        return _MISSING

    def raw_result(self, step: str) -> Any:
        """The whole result of a step, from state or from what the shell has brought."""
        return whole_result(self._control.steps[step], self._found(step))

    def is_stored(self, step: str) -> bool:
        """True for a result that is not in control state, or will not be once it is recorded."""
        return "reference" in self._control.steps[step].result or _is_lazy(self._found(step))

    def is_kept_elsewhere(self, path: tuple[str, ...]) -> bool:
        """Whether a path leads into the part of a step's result that its event does not have, or will not have.

        A `ref` is not such a part: it is read, and stands for something else.
        """
        step, state = path[0], self._control.steps.get(path[0])
        if state is None or state.state != "ended" or step in self._special or step == self._entering:
            return False
        found = self._found(step)
        said = state.result.get("reference") or (found["results"].reference if _is_lazy(found) else None)
        if said is None or path[-1] == "ref":
            return False
        at_hand: Any = state.result.get("context")
        if _is_lazy(at_hand):
            at_hand = {name: value for name, value in at_hand.items() if name != "results"}
        return reads_more({path}, (step,), at_hand, said)

    def _found(self, step: str) -> Any:
        state = self._control.steps[step]
        if "reference" in state.result and step in self._known.results:
            return self._known.results[step]
        return state.result.get("context")

    def _result(self, step: str, state: StepState) -> ResultView:
        found = self._found(step)
        if not _is_lazy(found):
            whole = whole_result(state, found)
            external = external_of(state.result.get("reference"), whole)
            return ResultView(whole, state.outcome, http=state.kind == "http", external=external)
        at_hand = {name: value for name, value in found.items() if name != "results"}
        said = state.result.get("reference") or found["results"].reference or {}
        about = (said.get("ref"), str(said.get("store", "")), str(said.get("preview", "")))
        external = External(*about, lambda: whole_result(state, found))
        return ResultView(at_hand, state.outcome, external=external)

    def _about_ended(self, step: str, name: str) -> Any:
        state = self._control.steps[step]
        match name:
            case "event":
                return self._event(step, state)
            case "output":
                return step_output(
                    self.raw_result(step),
                    failed=state.outcome == "error",
                    error=state.error,
                    reference=state.result.get("reference"),
                    more=state.output,
                )
            case "error":
                return state.error
            case "step":
                return state.scratch
            case _:
                return self._result(step, state)

    def _event(self, step: str, state: StepState) -> Json:
        payload: Json = {"result": state.result, "error": state.error}
        if state.event_name == "loop.done":
            raw = self.raw_result(step)
            if isinstance(raw, dict):
                payload = {**payload, "result": {**state.result, "context": raw}, **raw}
        return {
            "name": EventName(state.event_name),
            "step": step,
            "payload": payload,
            "timestamp": self._known.now,
        }


def whole_result(state: StepState, found: Any) -> Any:
    """A result as authors see it. A loop's has its results twice, and in the log only once."""
    if state.event_name != "loop.done" or not isinstance(found, dict) or "results" not in found:
        return found
    results = list(found["results"]) if _is_lazy(found) else found["results"]
    return {**found, "results": results, "data": results}


def _is_lazy(found: Any) -> bool:
    """A loop's results may wait elsewhere until somebody asks for them."""
    return isinstance(found, dict) and "results" in found and isinstance(found["results"], LazyResults)


def external_of(reference: Json | None, value: Any) -> External | None:
    """What a view of a result says about where it is kept; nothing for one that its event holds."""
    if reference is None:
        return None
    said = (reference.get("ref"), str(reference.get("store", "")), str(reference.get("preview", "")))
    return External(*said, lambda: value)


def _identity(control: Control, known: Known) -> Json:
    own = str(control.execution_id)
    identity: Json = {
        "execution_id": own,
        "catalog_id": control.catalog_id,
        "job": {"uuid": own, "execution_id": own, "id": own},
        "parent_execution_id": None if control.parent_execution_id is None else str(control.parent_execution_id),
    }
    if known.server_url is not None:
        identity["server_url"] = known.server_url
    return identity


def _roots(value: Any) -> frozenset[str]:
    """The names that the templates inside a value use; none for text that is no template: rendering it will say so."""
    if isinstance(value, str):
        try:
            return templates.names(value)
        except templates.TemplateError:
            return frozenset()
    if isinstance(value, Mapping):
        return frozenset().union(*(_roots(item) for item in value.values()))
    if isinstance(value, (list, tuple)):
        return frozenset().union(*(_roots(item) for item in value))
    return frozenset()
