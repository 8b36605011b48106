"""The names a template sees when the engine evaluates it, in the order of the language reference, 6.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl.engine.control import Control, StepState
from noetl.engine.outcome import step_output
from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.templates import EventName, ResultView

__all__ = ["IDENTITY", "Known", "Scope"]

IDENTITY = ("execution_id", "catalog_id", "job", "parent_execution_id", "server_url")
"""Names that nothing shadows."""

_MISSING = object()


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell has looked up for a decision. The engine itself never waits for anything."""

    now: str
    results: Mapping[str, Any] = {}
    """Results by step that are too large for control state, for the names that templates use."""
    env: Mapping[str, str] = {}
    catalog_id: str | None = None
    server_url: str | None = None
    items: Mapping[str, Sequence[Any]] = {}
    """The collections of loops in flight, by step."""
    loop_results: list[Any] | None = None
    """The results of all iterations, by index, when this report is a loop's last."""


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
        self._special: dict[str, Any] = {
            "ctx": control.ctx,
            "workload": control.workload,
            "env": known.env,
            **_identity(control, known),
        }
        if ended is not None:
            self._special.update(self._ended(ended))
        elif sender is not None:
            self._special["result"] = self._special["response"] = self._result(sender, control.steps[sender])

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
        state = self._control.steps.get(name)
        if state is not None and state.state == "ended" and name != self._entering:
            return self._result(name, state)
        for layer in (self._control.ctx, self._control.workload):
            if name in layer:
                return layer[name]
        return _MISSING

    def raw_result(self, step: str) -> Any:
        """The whole result of a step, from state or from what the shell has brought."""
        state = self._control.steps[step]
        if "reference" in state.result and step in self._known.results:
            return self._known.results[step]
        return state.result.get("context")

    def _result(self, step: str, state: StepState) -> ResultView:
        return ResultView(self.raw_result(step), state.outcome, http=state.kind == "http")

    def _ended(self, step: str) -> Json:
        state = self._control.steps[step]
        raw = self.raw_result(step)
        output = step_output(
            raw,
            failed=state.outcome == "error",
            error=state.error,
            reference=state.result.get("reference"),
            more=state.output,
        )
        payload: Json = {"result": state.result, "error": state.error}
        if state.event_name == "loop.done" and isinstance(raw, dict):
            payload |= raw
        view = self._result(step, state)
        event = {
            "name": EventName(state.event_name),
            "step": step,
            "payload": payload,
            "timestamp": self._known.now,
        }
        return {
            "event": event,
            "output": output,
            "result": view,
            "response": view,
            "error": state.error,
            "step": state.scratch,
        }


def _identity(control: Control, known: Known) -> Json:
    own = str(control.execution_id)
    identity: Json = {
        "execution_id": own,
        "catalog_id": known.catalog_id,
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
