"""The executions of a run: families whose events stand between those of others, told append by append."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from noetl.kernel.event import Draft, Envelope, Ref
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream, stage_stream, telemetry_stream
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Ledger
from noetl.runtime.sealing import measure

__all__ = ["Beat", "Plot", "plots_of", "said"]

TENANTS = ("acme", "globex")
_FIRST = 7001

Beat = Callable[[Ledger], Awaitable[Sequence[Batch]]]
"""One append, decided on what the ledger has."""


def said(event_type: str, root: Stream, key: str | None = None, **fields: Any) -> Draft:
    """A draft of whoever tells an execution."""
    return Draft(
        event_type=event_type, tenant_id=root.tenant_id, organization_id="ops", project_id="sim",
        principal="user:ada", producer=f"noetl://tenant/{root.tenant_id}",
        execution_id=int(root.stream_id.split("/")[1]),
        idempotency_key=None if key is None else f"{root.stream_id}:{key}", **fields,
    )  # fmt: skip


class Plot:
    """One family: an execution, perhaps one that it calls, perhaps one that it was retried from."""

    def __init__(self, number: int, chance: random.Random, origin: Stream | None) -> None:
        tenant = TENANTS[number % 2]
        self.root = Stream(tenant, execution_stream(_FIRST + 10 * number))
        self.child = Stream(tenant, execution_stream(_FIRST + 10 * number + 1)) if chance.random() < 0.5 else None
        self.origin = origin if origin is not None and origin.tenant_id == tenant else None
        """The execution that this one goes back to."""
        self.is_endless = chance.random() < 0.15
        self.begins_after = chance.choice((0.0, 20.0, 300.0))
        self.told = 0
        self.beats = self._beats(chance)

    @property
    def members(self) -> list[Stream]:
        """All of the family."""
        return [self.root] if self.child is None else [self.root, self.child]

    def _beats(self, chance: random.Random) -> list[Beat]:
        payload: dict[str, Any] = {"path": "sim"}
        if self.origin is not None:
            payload["forked_from"] = {
                "execution_id": self.origin.stream_id.split("/")[1], "event_id": "1", "step": "x"
            }  # fmt: skip
        own = [self._begin(self.root, payload=payload)]
        own += [self._heartbeat(self.root, number) for number in range(chance.randint(0, 2))]
        if chance.random() < 0.5:
            own += [self._open_stage, self._frame, self._close_stage]
        called: list[Beat] = []
        if self.child is not None:
            number = int(self.root.stream_id.split("/")[1])
            called += [self._begin(self.child, parent_execution_id=number, payload={"path": "called"})]
            called += [self._heartbeat(self.child, 0), self._end(self.child)]
        at = 1
        for beat in called:  # each somewhere after the one before it
            at = chance.randint(at, len(own))
            own.insert(at, beat)
            at += 1
        return own if self.is_endless else [*own, self._end(self.root)]

    def _begin(self, root: Stream, **fields: Any) -> Beat:
        return _fixed(Batch(stream=root, drafts=[said("playbook.initialized", root, "begin", **fields)]))

    def _end(self, root: Stream) -> Beat:
        return _fixed(Batch(stream=root, drafts=[said("playbook.completed", root, "end")]))

    def _heartbeat(self, root: Stream, number: int) -> Beat:
        stream = Stream(root.tenant_id, telemetry_stream(int(root.stream_id.split("/")[1])))
        return _fixed(
            Batch(stream=stream, drafts=[said("command.heartbeat", root, f"beat{number}", command_id=number + 1)])
        )

    async def _open_stage(self, _: Ledger) -> Sequence[Batch]:
        payload = {"kind": "loop", "frame_policy": {"max_rows": 50}}
        opened = said(
            "stage.opened", self.root, "open", aggregate_type="stage", stage_id=Ref(0), node_name="s", payload=payload
        )
        return [Batch(stream=self.root, drafts=[opened])]

    async def _frame(self, ledger: Ledger) -> Sequence[Batch]:
        stage, stream = await self._stage(ledger)
        frame: dict[str, Any] = {"aggregate_type": "frame", "stage_id": stage, "node_name": "s", "attempt": 1}
        payload = {"slot": 0, "frame_index": 0, "lease_until": "2026-03-02T09:00:00.000000Z"}
        dispatched = said("frame.dispatched", self.root, "frame", frame_id=Ref(0), payload=payload, **frame)
        return [Batch(stream=stream, drafts=[dispatched])]

    async def _close_stage(self, ledger: Ledger) -> Sequence[Batch]:
        stage, stream = await self._stage(ledger)
        seal = msgspec.to_builtins(await measure(ledger, stream, final=True))
        payload = {"seal": {**seal, "peaks": list(seal["peaks"])}}
        closed = said(
            "stage.closed", self.root, "close", aggregate_type="stage", stage_id=stage, node_name="s",
            status="COMPLETED", payload=payload,
        )  # fmt: skip
        return [Batch(stream=self.root, drafts=[closed])]

    async def _stage(self, ledger: Ledger) -> tuple[int, Stream]:
        events: list[Envelope] = [item.event for item in await ledger.read(self.root)]
        stage = next(event.event_id for event in events if event.event_type == "stage.opened")
        return stage, Stream(self.root.tenant_id, stage_stream(int(self.root.stream_id.split("/")[1]), stage))


def plots_of(count: int, chance: random.Random) -> list[Plot]:
    """So many families; the third may be a retry of the first."""
    plots: list[Plot] = []
    for number in range(count):
        origin = plots[number - 2].root if number >= 2 and chance.random() < 0.7 else None
        plots.append(Plot(number, chance, origin))
    return plots


def _fixed(batch: Batch) -> Beat:
    async def beat(_: Ledger) -> Sequence[Batch]:
        return [batch]

    return beat
