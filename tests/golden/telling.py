"""How the stories of the corpus are told: an execution, its commands and its data stages, in few words.

Everything a story does not say is fixed here: the tenant, who wrote the event, how long things take.
"""

from __future__ import annotations

import hashlib
from typing import Any

from noetl.kernel.event import Draft, Envelope, Json, PayloadRef, Ref
from noetl.kernel.names import FrameCoordinates, InfrastructureName, PayloadName, ResultCoordinates
from noetl.kernel.stamp import Batch, Stream
from noetl.kernel.streams import execution_stream, stage_stream, telemetry_stream
from noetl.kernel.time import format_time
from tests.scribe import Scribe

TENANT, ORGANIZATION, PROJECT = "acme", "retail", "sales"
ADA = "user:ada@acme.example"
SYSTEM = "system"
FRAME_POLICY: Json = {
    "max_rows": 50,
    "max_seconds": 30,
    "lease_seconds": 120,
    "heartbeat_seconds": 30,
    "process": "frame",
}
PAUSE = 40_000
SECOND = 1_000_000


def producer(worker: str | None = None) -> str:
    """The locator of the server, or of one of its workers."""
    place = InfrastructureName(
        tenant=TENANT, org=ORGANIZATION, region="eu-west-1", zone="b", cluster="main", node="node-3", worker=worker
    )
    return str(place)


def stored(content: str, media_type: str = "application/json", rows: int | None = None) -> PayloadRef:
    """The reference to bytes that were stored before the event was written."""
    data = content.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    name = PayloadName(tenant=TENANT, project=PROJECT, sha256=sha256)
    return PayloadRef(uri=str(name), sha256=sha256, media_type=media_type, bytes=len(data), rows=rows)


def fault(kind: str, code: str, message: str, *, retryable: bool = False, **more: Any) -> Json:
    """An error in the shape the language gives it."""
    return {"kind": kind, "code": code, "message": message, "retryable": retryable, **more}


class Story:
    """One root stream and those below it, written through a scribe."""

    def __init__(self, scribe: Scribe, root: str, execution_id: int | None = None, principal: str = ADA) -> None:
        self.scribe = scribe
        self.root = root
        self.execution_id = execution_id
        self.principal = principal

    def draft(self, event_type: str, *, worker: str | None = None, **fields: Any) -> Draft:
        """A draft with what every event of this story has in common."""
        meta = {**fields.pop("meta", {}), **({"worker_id": worker} if worker else {})}
        common: Json = {
            "tenant_id": TENANT,
            "organization_id": ORGANIZATION,
            "project_id": PROJECT,
            "principal": self.principal,
            "producer": producer(worker),
            "execution_id": self.execution_id,
            "meta": meta,
        }
        return Draft(event_type=event_type, **{**common, **fields})

    def say(self, *drafts: Draft, stream: str | None = None, pause: int = PAUSE) -> list[Envelope]:
        """Append drafts to one stream of the root, a moment after the last."""
        self.scribe.now += pause
        return self.scribe.append(Batch(stream=Stream(TENANT, stream or self.root), drafts=drafts))

    def tell(self, event_type: str, *, stream: str | None = None, pause: int = PAUSE, **fields: Any) -> Envelope:
        """Append one event."""
        return self.say(self.draft(event_type, **fields), stream=stream, pause=pause)[0]


class Run(Story):
    """One execution."""

    def __init__(self, scribe: Scribe, *, principal: str = ADA) -> None:
        execution_id = scribe.ids.next(scribe.now // 1000)
        super().__init__(scribe, execution_stream(execution_id), execution_id, principal)
        self.telemetry = telemetry_stream(execution_id)

    @property
    def id(self) -> int:
        assert self.execution_id is not None
        return self.execution_id

    def begin(self, path: str, first_step: str, workload: Json, *, version: int = 1, **fields: Any) -> None:
        """`playbook.initialized` and `workflow.initialized`."""
        payload: Json = {
            "path": path,
            "document": {
                "sha256": hashlib.sha256(f"{path}@{version}".encode()).hexdigest(),
                "path": path,
                "version": version,
                "origin": "catalog",
            },
            "workload": workload,
            "home": {"env": "prod", "region": "eu-west-1", "cell": "c1"},
            "authority": {"credentials": ["pg_main"], "tool_kinds": ["http", "postgres", "python"], "grants": []},
            "root_execution_id": fields.pop("root_execution_id", self.id),
        }
        extra: Json = {"set": fields.pop("set")} if "set" in fields else {}
        self.say(
            self.draft(
                "playbook.initialized",
                payload={**payload, **extra},
                idempotency_key=f"execute/{path}/{self.id}",
                status="PENDING",
                **fields,
            ),
            self.draft("workflow.initialized", node_name=first_step, status="RUNNING"),
        )

    def issue(self, step: str, kind: str, *, attempt: int = 1, **fields: Any) -> int:
        """`command.issued`; returns the command's id, which is the event's own."""
        facts: Json = {
            name: fields.pop(name) for name in ("loop_id", "loop_index", "child_execution_id") if name in fields
        }
        payload: Json = {"kind": kind, "pool": "default", "input": fields.pop("input", {}), **facts}
        return self.tell(
            "command.issued",
            aggregate_type="command",
            command_id=Ref(0),
            node_name=step,
            status="PENDING",
            attempt=attempt,
            payload=payload,
            **fields,
        ).event_id

    def about(self, event_type: str, command_id: int, step: str, **fields: Any) -> Draft:
        """A draft about one command."""
        return self.draft(
            event_type,
            **{
                "aggregate_type": "command",
                "command_id": command_id,
                "causation_id": command_id,
                "node_name": step,
                **fields,
            },
        )

    def taken(self, command_id: int, step: str, worker: str, *, enter: bool = True) -> list[Draft]:
        """`command.claimed`, `command.started` and, the first time, `step.enter`."""
        drafts = [
            self.about("command.claimed", command_id, step, worker=worker, status="CLAIMED"),
            self.about("command.started", command_id, step, worker=worker, status="RUNNING"),
        ]
        return drafts + ([self.draft("step.enter", node_name=step, worker=worker)] if enter else [])

    def done(
        self, command_id: int, step: str, worker: str, context: Json, *, exits: bool = True, **fields: Any
    ) -> list[Draft]:
        """What a worker reports of a call that went well."""
        payload: Json = {"result": {"status": "ok", "context": context, **fields.pop("result", {})}}
        if "set" in fields:
            payload["set"] = fields.pop("set")
        call = self.about(
            "call.done",
            command_id,
            step,
            worker=worker,
            status="COMPLETED",
            idempotency_key=f"report/{command_id}",
            payload=payload,
            **{"meta": {"duration_ms": 31}, **fields},
        )
        ended = self.about("command.completed", command_id, step, worker=worker, status="COMPLETED")
        return [call, *([self.draft("step.exit", node_name=step, status="COMPLETED")] if exits else []), ended]

    def broken(self, command_id: int, step: str, worker: str, error: Json, *, exits: bool = True) -> list[Draft]:
        """What a worker reports of a call that failed."""
        call = self.about(
            "call.error",
            command_id,
            step,
            worker=worker,
            status="FAILED",
            idempotency_key=f"report/{command_id}",
            payload={"result": {"status": "error"}, "error": error},
            meta={"duration_ms": 1204},
        )
        ended = self.about("command.failed", command_id, step, worker=worker, status="FAILED", payload={"error": error})
        return [call, *([self.draft("step.exit", node_name=step, status="FAILED")] if exits else []), ended]

    def work(self, step: str, kind: str, context: Json, *, worker: str = "worker-1", **fields: Any) -> int:
        """A step with one command, from issue to completion."""
        issued = {name: fields.pop(name) for name in ("input", "attempt") if name in fields}
        command_id = self.issue(step, kind, **issued)
        self.say(*self.taken(command_id, step, worker), *self.done(command_id, step, worker, context, **fields))
        return command_id

    def end(self, final_step: str, context: Json, *, pause: int = PAUSE) -> None:
        """`workflow.completed` and `playbook.completed`."""
        result = {"status": "ok", "context": context}
        self.say(
            self.draft("workflow.completed", node_name=final_step, status="COMPLETED"),
            self.draft(
                "playbook.completed",
                node_name="playbook",
                status="COMPLETED",
                payload={"final_step": final_step, "result": result, "error": None},
            ),
            pause=pause,
        )

    def fail(self, final_step: str, error: Json) -> None:
        """`workflow.failed` and `playbook.failed`."""
        payload: Json = {"final_step": final_step, "result": {"status": "error"}, "error": error}
        self.say(
            self.draft("workflow.failed", node_name=final_step, status="FAILED", payload={"error": error}),
            self.draft("playbook.failed", node_name="playbook", status="FAILED", payload=payload),
        )

    def beat(self, command_id: int, step: str, worker: str) -> None:
        """`command.heartbeat`, in the telemetry stream."""
        self.say(self.about("command.heartbeat", command_id, step, worker=worker), stream=self.telemetry)

    def seal_telemetry(self, *, final: bool) -> None:
        """`stream.sealed` over the telemetry stream."""
        seal = self.scribe.seal(Stream(TENANT, self.telemetry), final=final)
        self.tell("stream.sealed", aggregate_type="stream", aggregate_id=self.telemetry, payload={"seal": seal})

    def reference(self, step: str, *, frame: FrameCoordinates | None = None, size: int, content: str) -> Json:
        """The reference of a result too large to stay in its event."""
        uri = self.address(step, frame=frame)
        meta: Json = {
            "content_type": "application/json",
            "bytes": size,
            "sha256": hashlib.sha256(content.encode()).hexdigest(),
            "compression": "zstd",
        }
        return {"kind": "result_ref", "ref": uri, "uri": uri, "store": "kv", "scope": "execution", "meta": meta}

    def address(self, step: str, *, frame: FrameCoordinates | None = None, attempt: int = 1) -> str:
        """The name of a step's or frame's result."""
        place = ResultCoordinates(
            tenant=TENANT, project=PROJECT, execution_id=self.id, step=step, run=1, frame=frame, attempt=attempt
        )
        return str(place.logical_uri())


class Stage:
    """One data stage of a run: its frames go to a stream of their own."""

    def __init__(self, run: Run, step: str, kind: str, command_id: int, **facts: Any) -> None:
        self.run, self.step, self.command_id = run, step, command_id
        self.id = run.tell(
            "stage.opened",
            aggregate_type="stage",
            stage_id=Ref(0),
            command_id=command_id,
            parent_event_id=command_id,
            node_name=step,
            status="OPEN",
            payload={"kind": kind, "frame_policy": FRAME_POLICY, **facts},
        ).event_id
        self.stream = stage_stream(run.id, self.id)

    @classmethod
    def entered(cls, run: Run, step: str, kind: str, *before: Draft, **facts: Any) -> Stage:
        """A stage as an engine opens it: what comes before it, the stage and its command in one append."""
        place = len(before)
        own: Json = {"stage_id": Ref(place), "command_id": Ref(place + 1), "node_name": step}
        loop = {name: value for name, value in facts.items() if name == "loop_id"}
        opened, issued = run.say(
            *before,
            run.draft("stage.opened", aggregate_type="stage", status="OPEN", payload={"kind": kind, **facts}, **own),
            run.draft("command.issued", aggregate_type="command", status="PENDING",
                      payload={"kind": "stage", "run": 1, **loop}, **own),
        )[place:]  # fmt: skip
        stage = cls.__new__(cls)
        stage.run, stage.step, stage.id, stage.command_id = run, step, opened.event_id, issued.event_id
        stage.stream = stage_stream(run.id, stage.id)
        return stage

    def closed(self, status: str, stats: Json, **facts: Any) -> Draft:
        """A draft of `stage.closed` with its seal, for a report's append."""
        seal = self.run.scribe.seal(Stream(TENANT, self.stream), final=True)
        return self.run.about("stage.closed", self.command_id, self.step, aggregate_type="stage", stage_id=self.id,
                              status=status, payload={"stats": stats, "seal": seal, **facts})  # fmt: skip

    def start(self, session: str) -> None:
        """`stage.started`, in the telemetry stream, when a session takes the stage."""
        payload: Json = {"session": session, "spark_ui": "http://spark.acme.example:4040"}
        self._tell("stage.started", stream=self.run.telemetry, aggregate_type="stage", payload=payload)

    def dispatch(
        self, slot: int, index: int, worker: str, *, frame_id: int | None = None, attempt: int = 1, **facts: Any
    ) -> int:
        """`frame.dispatched`; the first one of a frame gives it its id."""
        return (
            self._tell(
                "frame.dispatched",
                worker=worker,
                frame_id=Ref(0) if frame_id is None else frame_id,
                status="CLAIMED",
                attempt=attempt,
                payload={
                    "slot": slot,
                    "frame_index": index,
                    "cursor": {"offset": index * 50, "limit": 50},
                    "lease_until": self.lease(),
                    **facts,
                },
            ).frame_id
            or 0
        )

    def started(self, frame_id: int, worker: str) -> None:
        self._tell("frame.started", worker=worker, frame_id=frame_id, status="RUNNING")

    def lease(self) -> str:
        """Two minutes from now, as the frame policy says."""
        return format_time(self.run.scribe.now + 120 * SECOND)

    def beat(self, frame_id: int, worker: str) -> None:
        """`frame.heartbeat`, in the telemetry stream."""
        payload = {"lease_until": self.lease()}
        self._tell("frame.heartbeat", stream=self.run.telemetry, worker=worker, frame_id=frame_id, payload=payload)

    def abandon(self, frame_id: int, worker: str) -> None:
        payload: Json = {
            "previous_owner": worker, "retry_mode": "whole_frame", "row_split_retry": False, "max_attempts": 3,
        }  # fmt: skip
        self._tell("frame.abandoned", frame_id=frame_id, status="ABANDONED", payload=payload, pause=125 * SECOND)

    def commit(
        self, frame_id: int, worker: str, rows: int, *, failed: int = 0, attempt: int = 1, **fields: Any
    ) -> None:
        output = stored(f"{self.step}/{frame_id}/{rows}", "application/vnd.apache.arrow.stream", rows)
        payload: Json = {
            "rows": rows,
            "outcomes": {"ok": rows - failed, "error": failed},
            "timings_ms": {"fetch": 41.5, "write": 12.25},
            "schema_digest": hashlib.sha256(self.step.encode()).hexdigest(),
        }
        self._tell(
            "frame.committed",
            worker=worker,
            frame_id=frame_id,
            status="COMPLETED",
            attempt=attempt,
            idempotency_key=f"frame/{frame_id}/commit",
            payload={**payload, **fields},
            payload_ref=output,
            meta={"locality": {"region": "eu-west-1", "zone": "b", "node": "node-3"}},
        )

    def commit_told(self, frame_id: int, worker: str, rows: int, returned: Json, **fields: Any) -> None:
        """`frame.committed` of rows that have returned little: the event has it."""
        failed = rows - len(returned["which"] if "which" in returned else returned["results"])
        self._tell(
            "frame.committed",
            worker=worker,
            frame_id=frame_id,
            status="COMPLETED",
            attempt=1,
            payload={"rows": rows, "outcomes": {"ok": rows - failed, "error": failed}, "returned": returned, **fields},
            meta={"locality": {"host": "spark", "node": "node-3"}},
        )

    def fail(self, frame_id: int, worker: str, error: Json, *, attempt: int = 1) -> None:
        self._tell(
            "frame.failed", worker=worker, frame_id=frame_id, status="FAILED", attempt=attempt, payload={"error": error}
        )

    def close(self, status: str = "COMPLETED", error: Json | None = None, **facts: Any) -> None:
        """`stage.closed`, which seals the stage's stream."""
        seal = self.run.scribe.seal(Stream(TENANT, self.stream), final=True)
        payload: Json = {"seal": seal, **facts, **({"error": error} if error else {})}
        self._tell("stage.closed", stream=self.run.root, aggregate_type="stage", status=status, payload=payload)

    def _tell(self, event_type: str, *, stream: str | None = None, **fields: Any) -> Envelope:
        known: Json = {
            "aggregate_type": "frame", "stage_id": self.id, "command_id": self.command_id, "node_name": self.step,
        }  # fmt: skip
        return self.run.tell(event_type, stream=stream or self.stream, **{**known, **fields})
