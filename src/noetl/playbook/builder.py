"""A playbook written in Python.

    playbook = (
        Playbook.builder("trip")
        .workload({"trip_id": 7})
        .step("fetch").tool("http", url="https://example.org/trips/{{ trip_id }}").next("tell")
        .step("tell").tool("python", code="result = {'ok': True}")
        .build()
    )

What comes out went through the same reader as a file, so it is valid by the same rules and equal to the
document one would have written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from typing import Self

    from noetl.playbook.document import Playbook

__all__ = ["Builder"]

_FILE = "<builder>"


class Builder:
    """Collects a document. Calls that concern a step mean the one named last."""

    def __init__(self, name: str = "generated", path: str | None = None) -> None:
        self._head: dict[str, Any] = {"name": name, **({"path": path} if path else {})}
        self._executor: dict[str, Any] = {}
        self._keychain: list[dict[str, Any]] = []
        self._workload: dict[str, Any] = {}
        self._workbook: list[dict[str, Any]] = []
        self._steps: list[dict[str, Any]] = []

    # --- The document -------------------------------------------------------------------------------------

    def metadata(self, **fields: Any) -> Self:
        """Add to the metadata: `description`, `tags`, `labels`, ..."""
        self._head.update(fields)
        return self

    def executor(self, *, profile: str | None = None, requires: Mapping[str, Any] | None = None, **spec: Any) -> Self:
        """Say where and how to run: `entry_step`, `final_step`, `no_next_is_error`, `policy`, `spark`."""
        self._executor.update(_given(profile=profile, requires=requires))
        if spec:
            self._executor.setdefault("spec", {}).update(spec)
        return self

    def workload(self, values: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """Add input with its default values."""
        self._workload.update({**(values or {}), **more})
        return self

    def keychain(self, name: str, kind: str, **fields: Any) -> Self:
        """Add a secret by name."""
        self._keychain.append({"name": name, "kind": kind, **fields})
        return self

    def workbook(self, name: str, kind: str, *, desc: str | None = None, **fields: Any) -> Self:
        """Add a task that others call by name."""
        self._workbook.append({"name": name, **_given(desc=desc), "tool": {"kind": kind, **fields}})
        return self

    # --- Steps --------------------------------------------------------------------------------------------

    def step(self, name: str, *, desc: str | None = None) -> Self:
        """Begin a step. What follows belongs to it, up to the next one."""
        self._steps.append({"step": name, **_given(desc=desc)})
        return self

    def tool(
        self,
        kind: str,
        *,
        name: str | None = None,
        rules: Sequence[Mapping[str, Any]] | None = None,
        timeout: float | str | None = None,
        side_effecting: bool | None = None,
        spec: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Self:
        """Give the step its task. A second call makes a pipeline, and so does a name."""
        policy = {"rules": list(rules)} if rules is not None else None
        inner = {**(spec or {}), **_given(timeout=timeout, side_effecting=side_effecting, policy=policy)}
        task = {**_given(name=name), "kind": kind, **fields, **({"spec": inner} if inner else {})}
        step = self._current("tool")
        before = step.get("tool")
        if before is None:
            step["tool"] = [task] if name is not None and kind != "workbook" else task
        else:
            step["tool"] = [*(before if isinstance(before, list) else [before]), task]
        return self

    def loop(self, items: Any, iterator: str = "item", **spec: Any) -> Self:
        """Repeat the step over a list: `mode`, `max_in_flight`, `policy`, `frame`, `partitions`, `by`, ..."""
        self._current("loop")["loop"] = {"in": items, "iterator": iterator, **({"spec": spec} if spec else {})}
        return self

    def cursor(self, auth: Any, claim: str, iterator: str = "row", *, options: Any = None, **spec: Any) -> Self:
        """Repeat the step over the rows that a statement claims."""
        source = {"kind": "postgres", "auth": auth, "claim": claim, **_given(options=options)}
        spec = {"mode": "cursor", **spec}
        self._current("cursor")["loop"] = {"cursor": source, "iterator": iterator, "spec": spec}
        return self

    def reduce(self, source: str, by: Sequence[str] | None = None) -> Self:
        """Run the step over groups of another step's frames."""
        self._current("reduce")["reduce"] = {"from": source, **_given(by=list(by) if by else None)}
        return self

    def input(self, values: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """Add to the input of every task of the step."""
        self._current("input").setdefault("input", {}).update({**(values or {}), **more})
        return self

    def set(self, values: Mapping[str, Any]) -> Self:
        """Assign after the step has succeeded: `{"ctx.total": "{{ output.data.total }}"}`."""
        self._current("set").setdefault("set", {}).update(values)
        return self

    def output(self, **fields: Any) -> Self:
        """Say how the result is stored."""
        self._current("output").setdefault("output", {}).update(fields)
        return self

    def timeout(self, duration: float | str) -> Self:
        """Limit each command of the step."""
        self._current("timeout").setdefault("spec", {})["timeout"] = duration
        return self

    def admit(self, when: Any = None, *, allow: bool) -> Self:
        """Add an admission rule; without `when` it always matches."""
        policy = self._current("admit").setdefault("spec", {}).setdefault("policy", {})
        then = {"then": {"allow": allow}}
        rule = {"else": then} if when is None else {"when": when, **then}
        policy.setdefault("admit", {}).setdefault("rules", []).append(rule)
        return self

    def next(self, *steps: str, when: Any = None, assign: Mapping[str, Any] | None = None) -> Self:
        """Add an arc to each of these steps."""
        arcs = self._router("next")["arcs"]
        arcs.extend({"step": name, **_given(when=when, set=dict(assign) if assign else None)} for name in steps)
        return self

    def route(self, mode: str = "exclusive", *, on_no_match: str | None = None) -> Self:
        """Say how arcs are chosen."""
        self._router("route")["spec"] = {"mode": mode, **_given(on_no_match=on_no_match)}
        return self

    # --- The result ---------------------------------------------------------------------------------------

    def build(self) -> Playbook:
        """The playbook, or InvalidDocument with everything that is wrong with it."""
        from noetl.playbook.parse import load

        return load(self.to_yaml(), _FILE)

    def to_dict(self) -> dict[str, Any]:
        """The document as plain data."""
        document = {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": self._head,
            "executor": self._executor,
            "keychain": self._keychain,
            "workload": self._workload,
            "workbook": self._workbook,
            "workflow": self._steps,
        }
        return deepcopy({name: value for name, value in document.items() if value})

    def to_yaml(self) -> str:
        """The document as YAML text."""
        from noetl.playbook.writing import dump

        return dump(self.to_dict())

    def _current(self, call: str) -> dict[str, Any]:
        if not self._steps:
            raise InvalidInput(f".{call}() belongs to a step", hint="call .step(name) first")
        return self._steps[-1]

    def _router(self, call: str) -> dict[str, Any]:
        router: dict[str, Any] = self._current(call).setdefault("next", {"arcs": []})
        return router


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
