"""What the writers have to tell: each root has a script of beats, and each beat is one append.

The next append depends only on what its writer has read, so a writer that lost its memory decides the
same thing again and finds, by its idempotency keys, that it has been said already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from noetl.kernel.event import Draft, Envelope, PayloadRef, Ref
from noetl.kernel.seal import Seal
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream, stage_stream, telemetry_stream
from noetl.kernel.tail import Stream
from tests.simulation.actions import Open

__all__ = ["Beat", "Known", "Telling", "beats_of", "root_of_script", "sealed_by", "tell"]

TENANTS = ("acme", "globex")
_FIRST_EXECUTION = 7001
_KEYLESS = 3  # every third draft has no key of its own, and is known by its neighbours


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """One append of a script."""

    name: str
    kind: str
    stage: int = 0
    frame: int = 0
    attempt: int = 0


class Known:
    """What a writer has read of its root."""

    def __init__(self) -> None:
        self.version = 0
        self.events: dict[str, list[Envelope]] = {}
        self.beats: set[str] = set()

    def learn(self, event: Envelope) -> None:
        """Take one more event into account."""
        self.events.setdefault(event.stream_id, []).append(event)
        if event.chain_hash is not None:
            self.version = event.stream_version
        if event.idempotency_key is not None:
            self.beats.add(event.idempotency_key.split(":")[1])

    def of_type(self, stream_id: str, event_type: str) -> list[Envelope]:
        """Events of one type in one stream."""
        return [event for event in self.events.get(stream_id, ()) if event.event_type == event_type]


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """A writer at one beat of its script."""

    script: Open
    rival: int
    known: Known
    beat: Beat
    seal: Seal | None = None

    @property
    def root(self) -> Stream:
        """The root that the script is about."""
        return root_of_script(self.script)

    @property
    def stage_id(self) -> int:
        """The id of the stage this beat belongs to."""
        return self.known.of_type(self.root.stream_id, "stage.opened")[self.beat.stage].event_id

    @property
    def stage(self) -> Stream:
        """The stream of that stage."""
        return Stream(self.root.tenant_id, stage_stream(execution_of_script(self.script), self.stage_id))

    @property
    def telemetry(self) -> Stream:
        """The telemetry stream of the execution."""
        return Stream(self.root.tenant_id, telemetry_stream(execution_of_script(self.script)))

    @property
    def frame_id(self) -> int:
        """The id of the frame this beat is about."""
        dispatched = self.known.of_type(self.stage.stream_id, "frame.dispatched")
        name = _frame_name(self.beat.stage, self.beat.frame, 1, "go")
        return next(event.event_id for event in dispatched if f":{name}:" in (event.idempotency_key or ""))

    def draft(self, event_type: str, **fields: Any) -> Draft:
        """A draft with what all drafts of this writer have in common."""
        tenant = self.root.tenant_id
        return Draft(
            event_type=event_type,
            tenant_id=tenant,
            organization_id="ops",
            project_id="sim",
            principal="user:ada",
            producer=f"noetl://tenant/{tenant}/org/ops/region/r/zone/z/cluster/c/node/n/worker/w{self.rival}",
            execution_id=execution_of_script(self.script) if self.script.kind == "execution" else None,
            **fields,
        )

    def decided(self, *drafts: Draft) -> Batch:
        """Drafts for the root stream, at the version that was read."""
        return Batch(stream=self.root, drafts=drafts, expected_version=self.known.version)


def execution_of_script(script: Open) -> int:
    """Two tenants share each execution id: only together with the tenant does it name something."""
    return _FIRST_EXECUTION + script.number // 2


def root_of_script(script: Open) -> Stream:
    """The root stream of a script."""
    tenant = TENANTS[script.number % 2]
    names = {
        "execution": execution_stream(execution_of_script(script)),
        "tenant": f"tenant/{tenant}",
        "subscription": f"subscription/orders-{script.number}",
    }
    return Stream(tenant, names[script.kind])


def beats_of(script: Open) -> list[Beat]:
    """The whole script, in order."""
    if script.kind != "execution":
        return [Beat(name=f"note{number}", kind=script.kind, attempt=number) for number in range(script.steps)]
    beats = [Beat(name="begin", kind="begin")]
    beats += [Beat(name=f"step{number}", kind="step", attempt=number) for number in range(script.steps)]
    for stage, frames in enumerate(script.frames):
        beats.append(Beat(name=f"g{stage}.open", kind="open", stage=stage))
        for frame, attempts in enumerate(frames):
            beats += _frame_beats(stage, frame, attempts)
            if frame == 0:
                beats.append(Beat(name=f"g{stage}.seal", kind="seal", stage=stage))
        beats.append(Beat(name=f"g{stage}.close", kind="close", stage=stage))
    if script.frames:
        beats.append(Beat(name="telemetry", kind="telemetry"))
    return [*beats, Beat(name="end", kind="end")]


def sealed_by(telling: Telling) -> tuple[Stream, bool] | None:
    """Which stream a beat seals, and whether for good."""
    if telling.beat.kind == "telemetry":
        return telling.telemetry, True
    return (telling.stage, telling.beat.kind == "close") if telling.beat.kind in ("seal", "close") else None


def tell(telling: Telling) -> list[Batch]:
    """The append of a beat."""
    tag = f"w{telling.rival}" if telling.script.own_keys and telling.beat.kind not in _SHARED else ""
    count = "" if telling.seal is None else str(telling.seal.count)
    prefix = f"{telling.root.stream_id.replace('/', '.')}:{telling.beat.name}"
    batches, number = [], 0
    for batch in _TELLERS[telling.beat.kind](telling):
        drafts = []
        for draft in batch.drafts:
            keyed = number % _KEYLESS != 1
            key = f"{prefix}:{number}:{tag}{count}" if keyed else None
            drafts.append(msgspec.structs.replace(draft, idempotency_key=key))
            number += 1
        batches.append(msgspec.structs.replace(batch, drafts=tuple(drafts)))
    return batches


def _frame_name(stage: int, frame: int, attempt: int, what: str) -> str:
    return f"g{stage}.f{frame}.a{attempt}.{what}"


def _frame_beats(stage: int, frame: int, attempts: int) -> list[Beat]:
    beats = []
    for attempt in range(1, attempts + 1):
        ending = "commit" if attempt == attempts else "abandon"
        beats += [
            Beat(name=_frame_name(stage, frame, attempt, what), kind=kind, stage=stage, frame=frame, attempt=attempt)
            for what, kind in (("go", "dispatch"), ("beat", "heartbeat"), (ending, ending))
        ]
    return beats


def _begin(t: Telling) -> list[Batch]:
    initialized = {"path": f"sim/run{t.script.number}", "workload": {"size": t.script.steps, "ratio": 0.5}}
    return [
        t.decided(
            t.draft("playbook.initialized", payload=initialized),
            t.draft("workflow.initialized", node_name="s0"),
            t.draft("step.enter", node_name="s0"),
            _issue(t, "s0", 3),
        )
    ]


def _issue(t: Telling, step: str, index: int) -> Draft:
    payload = {"kind": "python", "pool": "shared"}
    return t.draft(
        "command.issued", aggregate_type="command", command_id=Ref(index), node_name=step, attempt=1, payload=payload
    )


def _step(t: Telling) -> list[Batch]:
    number = t.beat.attempt
    step, following = f"s{number}", f"s{number + 1}"
    command = t.known.of_type(t.root.stream_id, "command.issued")[-1].event_id
    of_command: dict[str, Any] = {"aggregate_type": "command", "command_id": command, "node_name": step}
    worker = {"worker_id": f"w{t.rival if t.script.own_keys else 0}"}
    done = {"result": {"rows": 10 * number, "share": 0.25}, "set": {f"ctx.{step}.rows": 10 * number, "ctx.last": step}}
    return [
        t.decided(
            t.draft("command.claimed", payload=worker, **of_command),
            t.draft("command.started", payload=worker, **of_command),
            t.draft("call.done", payload=done, **of_command),
            t.draft("command.completed", payload={}, **of_command),
            t.draft("step.exit", node_name=step, status="COMPLETED"),
            t.draft("step.enter", node_name=following),
            _issue(t, following, 6),
            _object(t, number),
        )
    ]


def _object(t: Telling, version: int) -> Draft:
    return t.draft(
        "business_object.updated",
        aggregate_type="business_object",
        aggregate_id="order/1",
        payload={
            "status": f"V{version}",
            "version": version,
            "attributes": {f"step{version}": version, "last": version},
        },
    )


def _open(t: Telling) -> list[Batch]:
    payload = {"kind": "loop", "frame_policy": {"max_rows": 50}}
    opened = t.draft("stage.opened", aggregate_type="stage", stage_id=Ref(0), node_name=_stage_step(t), payload=payload)
    return [t.decided(opened)]


def _stage_step(t: Telling) -> str:
    return f"stage{t.beat.stage}"


def _of_frame(t: Telling) -> dict[str, Any]:
    return {"aggregate_type": "frame", "stage_id": t.stage_id, "node_name": _stage_step(t), "attempt": t.beat.attempt}


def _dispatch(t: Telling) -> list[Batch]:
    frame = Ref(0) if t.beat.attempt == 1 else t.frame_id
    payload = {"slot": t.beat.frame % 2, "frame_index": t.beat.frame, "lease_until": _lease(t, 0)}
    of_frame = {**_of_frame(t), "frame_id": frame}
    drafts = (t.draft("frame.dispatched", payload=payload, **of_frame), t.draft("frame.started", **of_frame))
    batches = [Batch(stream=t.stage, drafts=drafts)]
    if t.beat.frame % 2:
        started = t.draft("stage.started", aggregate_type="stage", stage_id=t.stage_id, node_name=_stage_step(t))
        batches.append(Batch(stream=t.telemetry, drafts=(started,)))
    return batches


def _lease(t: Telling, beat: int) -> str:
    return f"2026-03-02T09:{t.beat.frame:02d}:{10 * t.beat.attempt + beat:02d}.000000Z"


def _heartbeat(t: Telling) -> list[Batch]:
    beat = t.draft("frame.heartbeat", frame_id=t.frame_id, payload={"lease_until": _lease(t, 1)}, **_of_frame(t))
    named = {"type": "order", "id": "1", "attributes": {"seen_by": t.beat.name, "last": t.beat.attempt}}
    noted = t.draft("telemetry.sampled", payload={"cpu": 0.125 * t.beat.attempt, "business_object": named})
    return [Batch(stream=t.telemetry, drafts=(beat, noted))]


def _abandon(t: Telling) -> list[Batch]:
    abandoned = t.draft("frame.abandoned", frame_id=t.frame_id, payload={"reason": "lease"}, **_of_frame(t))
    return [Batch(stream=t.stage, drafts=(abandoned,))]


def _commit(t: Telling) -> list[Batch]:
    content = f"{t.root.tenant_id}{t.root.stream_id}{t.beat.name}".encode()
    sha256 = hashlib.sha256(content).hexdigest()
    ref = PayloadRef(
        uri=f"noetl://{t.root.tenant_id}/sim/payloads/sha256/{sha256}",
        sha256=sha256,
        media_type="application/vnd.apache.arrow.file",
        bytes=len(content),
    )
    payload = {"rows": 5 + t.beat.frame, "outcomes": {"ok": 5 + t.beat.frame}}
    committed = t.draft("frame.committed", frame_id=t.frame_id, payload=payload, payload_ref=ref, **_of_frame(t))
    batches = [Batch(stream=t.stage, drafts=(committed,))]
    if t.beat.frame % 2 == 0:
        batches.append(t.decided(_object(t, 100 * (t.beat.stage + 1) + t.beat.frame)))
    return batches


def _seal(t: Telling) -> list[Batch]:
    return [t.decided(t.draft("stream.sealed", payload=_seal_payload(t)))]


def _seal_payload(t: Telling) -> dict[str, Any]:
    return {"seal": msgspec.json.decode(msgspec.json.encode(t.seal))}


def _close(t: Telling) -> list[Batch]:
    of_stage: dict[str, Any] = {"aggregate_type": "stage", "stage_id": t.stage_id, "node_name": _stage_step(t)}
    return [t.decided(t.draft("stage.closed", status="COMPLETED", payload=_seal_payload(t), **of_stage))]


def _end(t: Telling) -> list[Batch]:
    ending = "failed" if t.script.own_keys and t.rival else "completed"
    last = {"final_step": f"s{t.script.steps}", "result": {"ending": ending, "mean": 2.5}}
    return [t.decided(t.draft(f"workflow.{ending}"), t.draft(f"playbook.{ending}", payload=last))]


def _tenant(t: Telling) -> list[Batch]:
    number = t.beat.attempt
    event_type = "tenant.updated" if number else "tenant.created"
    return [t.decided(t.draft(event_type, aggregate_type="tenant", payload={"settings": {f"limit{number}": number}}))]


def _subscription(t: Telling) -> list[Batch]:
    number = t.beat.attempt
    event_type = "subscription.message.dispatched" if number else "subscription.activated"
    told = t.draft(event_type, aggregate_type="subscription", aggregate_id="orders", payload={"message": number})
    return [Batch(stream=t.root, drafts=(told,))]


_SHARED = frozenset({"dispatch", "heartbeat", "abandon", "commit", "subscription"})
_TELLERS: Mapping[str, Callable[[Telling], list[Batch]]] = {
    "begin": _begin,
    "step": _step,
    "open": _open,
    "dispatch": _dispatch,
    "heartbeat": _heartbeat,
    "abandon": _abandon,
    "commit": _commit,
    "seal": _seal,
    "close": _close,
    "telemetry": _seal,
    "end": _end,
    "tenant": _tenant,
    "subscription": _subscription,
}
