"""Objects, cancellation, batches, other releases' logs, and the roots that are not executions."""

from __future__ import annotations

from noetl.kernel.event import Json
from noetl.kernel.upcast import LEGACY_SCHEMA
from tests.golden.telling import ADA, PAUSE, PROJECT, SECOND, SYSTEM, TENANT, Run, Stage, Story, fault, stored
from tests.scribe import Scribe


def business_objects(scribe: Scribe) -> list[str]:
    """Things of the user's domain, named by events of three streams; of two writers the later one wins."""
    run = Run(scribe)
    run.begin("crm/sync_patients", "sync", {"clinic": "north"})
    command = run.issue("sync", "spark")
    run.say(*run.taken(command, "sync", "spark-1"))
    patient = "patient/P-100"
    run.tell(
        "business_object.created",
        aggregate_type="business_object",
        aggregate_id=patient,
        payload={
            "status": "NEW",
            "version": 1,
            "attributes": {"name": "Ada Lovelace", "born": 1815, "weight_kg": 57.25},
        },
        payload_ref=stored("patient P-100, first version"),
    )
    stage = Stage(run, "sync", "transfer", command)
    frame = stage.dispatch(0, 0, "spark-1")
    stage.commit(
        frame, "spark-1", 1,
        business_object={"type": "patient", "id": "P-100", "version": 2, "attributes": {"ward": "W3"}},
    )  # fmt: skip
    run.say(
        run.about(
            "command.heartbeat", command, "sync", worker="spark-1",
            meta={"business_object": {"type": "patient", "id": "P-100", "attributes": {"last_contact": "2026-03-02"}}},
        ),
        stream=run.telemetry,
    )  # fmt: skip
    stage.close()
    run.say(*run.done(command, "sync", "spark-1", {"patients": 2}))
    run.tell(
        "business_object.updated",
        aggregate_type="business_object",
        aggregate_id=patient,
        payload={"status": "ADMITTED", "version": 3, "attributes": {"ward": "W5", "weight_kg": 56.0}},
        payload_ref=stored("patient P-100, third version"),
    )
    run.tell(
        "business_object.created", aggregate_type="business_object", aggregate_id="patient/P-101",
        payload={"status": "NEW", "version": 1, "attributes": {"name": "Zoë Müller"}},
    )  # fmt: skip
    run.tell(
        "business_object.deleted", aggregate_type="business_object", aggregate_id="patient/P-101",
        payload={"status": "DUPLICATE", "version": 2},
    )  # fmt: skip
    run.seal_telemetry(final=True)
    run.end("sync", {"patients": 2})
    return [run.root]


def cancelled(scribe: Scribe) -> list[str]:
    """Cancelled while a tool runs and a stage is open: open frames are abandoned, the late result is kept."""
    run = Run(scribe)
    run.begin("sales/rebuild_index", "rebuild", {"full": True})
    slow = run.issue("rebuild", "container", input={"image": "indexer:3"})
    run.say(*run.taken(slow, "rebuild", "worker-1"))
    spark = run.issue("scan", "spark")
    run.say(*run.taken(spark, "scan", "spark-1"))
    stage = Stage(run, "scan", "loop", spark)
    frame = stage.dispatch(0, 0, "spark-1")
    stage.started(frame, "spark-1")
    waiting = run.issue("report", "python")
    reason = fault("unknown", "CANCELLED", "stopped by ada: wrong index")
    run.tell(
        "playbook.cancelled",
        node_name="playbook",
        status="CANCELLED",
        idempotency_key=f"cancel/{run.id}",
        payload={"final_step": None, "result": {"status": "error"}, "error": reason},
    )
    stage.abandon(frame, "spark-1")
    stage.close("CANCELLED", reason)
    run.say(
        run.about("command.cancelled", spark, "scan", status="CANCELLED", payload={"error": reason}),
        run.about("command.cancelled", waiting, "report", status="CANCELLED", payload={"error": reason}),
    )
    late: Json = {"result": {"status": "ok", "context": {"documents": 120_400}}}
    run.say(
        run.about("command.cancelled", slow, "rebuild", worker="worker-1", status="CANCELLED", payload=late),
        pause=42 * SECOND,
    )
    return [run.root]


def batches(scribe: Scribe) -> list[str]:
    """Reports that arrive in batches: two are accepted, the second is refused in processing."""
    run = Run(scribe)
    run.begin("sales/import_events", "ingest", {"source": "edge-12"})
    command = run.issue("ingest", "python")
    run.say(*run.taken(command, "ingest", "worker-1"))
    _batch(run, "b-1", "accepted", {"items": 120})
    _batch(run, "b-1", "processing", {"items": 120})
    _batch(run, "b-1", "completed", {"items": 120, "written": 118, "duplicates": 2})
    _batch(run, "b-2", "accepted", {"items": 80})
    _batch(run, "b-2", "processing", {"items": 80})
    error = fault("schema", "SCHEMA_MISMATCH", "item 17 has no event_type")
    _batch(run, "b-2", "failed", {"items": 80, "written": 0, "error": error})
    run.say(*run.done(command, "ingest", "worker-1", {"batches": 2, "written": 118}))
    run.end("ingest", {"written": 118})
    return [run.root]


def _batch(run: Run, batch: str, verb: str, payload: Json) -> None:
    key = f"batch/{batch}/{verb}"
    run.tell(f"batch.{verb}", aggregate_type="batch", aggregate_id=batch, idempotency_key=key, payload=payload)


def newer_release(scribe: Scribe) -> list[str]:
    """A log with event types this release has never heard of: they are counted, and the rest is read."""
    run = Run(scribe)
    run.begin("sales/forecast", "train", {"horizon": 14})
    run.tell("model.checkpointed", node_name="train", schema_version=3, payload={"epoch": 1, "loss": 0.3125})
    run.tell("model.checkpointed", node_name="train", schema_version=3, payload={"epoch": 2, "loss": 0.25})
    run.tell("budget.reserved", payload={"amount": "12.00", "set": {"ctx.budget": "12.00"}})
    run.work("train", "python", {"loss": 0.25}, set={"ctx.loss": 0.25})
    run.tell("carbon.measured", stream=run.telemetry, payload={"grams": 41.75})
    run.seal_telemetry(final=True)
    run.end("train", {"loss": 0.25})
    return [run.root]


def legacy(scribe: Scribe) -> list[str]:
    """A log of the untyped schema, in older spelling: facts inside `context`, older names."""
    run = Run(scribe)
    old: Json = {"schema_name": LEGACY_SCHEMA, "schema_version": 1}
    run.tell("playbook_started", payload={"context": {"path": "legacy/load", "workload": {"table": "orders"}}}, **old)
    run.tell("workflow.initialized", node_name="load", **old)
    command = run.tell(
        "command.issued", aggregate_type="command", node_name="load", attempt=1,
        payload={"context": {"kind": "postgres", "loop_event_id": "load/1", "loop_index": 0}}, **old,
    ).event_id  # fmt: skip
    for event_type in ("command.claimed", "command.started"):
        run.say(run.about(event_type, command, "load", worker="worker-1", **old))
    stage = run.tell(
        "stage.opened", aggregate_type="stage", node_name="load", command_id=command,
        payload={"context": {"kind": "loop", "policy": {"max_rows": 10}, "loop_event_id": "load/1"}}, **old,
    ).event_id  # fmt: skip
    known: Json = {"aggregate_type": "frame", "node_name": "load", "stage_id": stage, **old}
    frame = run.tell(
        "frame.dispatched", worker="worker-1", payload={"context": {"worker_slot_id": 0, "frame_index": 0}}, **known
    ).event_id
    run.tell("frame.committed", frame_id=frame, payload={"payload": {"row_count": 10, "outcomes": {"ok": 10}}}, **known)
    run.tell("stage.closed", aggregate_type="stage", stage_id=stage, node_name="load", status="COMPLETED", **old)
    run.say(
        run.about("call.done", command, "load", payload={"result": {"status": "ok"}, "context": {"rows": 10}}, **old)
    )
    run.say(run.about("command.completed", command, "load", **old))
    run.tell("execution.cancelled", node_name="playbook", payload={"context": {"final_step": "load"}}, **old)
    return [run.root]


def registry(scribe: Scribe) -> list[str]:
    """A registered model: versions, locations, grants, and its end."""
    story = Story(scribe, f"registry/{TENANT}/{PROJECT}/model/churn")
    model: Json = {"aggregate_type": "resource", "aggregate_id": "model/churn"}
    for version in (1, 2):
        story.tell(
            "catalog.resource.registered",
            payload={"kind": "model", "descriptor": {"framework": "xgboost", "version": version, "auc": 0.8125}},
            idempotency_key=f"register/churn/{version}",
            **model,
        )
        location = {"uri": f"noetl://{TENANT}/{PROJECT}/models/churn@{version}", "region": "eu-west-1", "bytes": 73_204}
        story.tell("catalog.resource.location_added", payload={"location": location}, **model)
    replica: Json = {"location": {"uri": "s3://replicas/churn-2", "region": "us-east-1", "bytes": 73_204}}
    story.tell("catalog.resource.replica_available", payload=replica, **model)
    for name, terms in (
        ("analysts", {"actions": ["read"]}),
        ("scoring", {"actions": ["read", "invoke"], "until": "2027-01-01"}),
    ):
        story.tell(
            "catalog.resource.grant_created", aggregate_type="grant", aggregate_id=f"grant/{name}",
            payload={"principal": f"group:{name}", "terms": terms},
        )  # fmt: skip
    story.tell("catalog.resource.archived", payload={"reason": "replaced by churn-next"}, **model)
    story.tell("catalog.resource.deleted_or_expired", payload={"reason": "retention"}, pause=1800 * SECOND, **model)
    return [story.root]


def subscription(scribe: Scribe) -> list[str]:
    """A subscription's life: messages, directives, a broken downstream, the spool, and its end."""
    story = Story(scribe, "subscription/guide/orders", principal=SYSTEM)
    itself: Json = {"aggregate_type": "subscription", "aggregate_id": "guide/orders"}
    script: list[tuple[str, Json]] = [
        ("registered", {"source": "nats", "stream": "ORDERS", "consumer": "orders-drain"}),
        ("activated", {"pool": "subscription"}),
        (
            "message.directives_applied",
            {"message_id": "m-1", "applied": [{"header": "x-priority", "controls": "priority"}]},
        ),
        ("message.dispatched", {"message_id": "m-1", "playbook": "guide/hello"}),
        ("message.deduplicated", {"message_id": "m-1", "window_secs": 600}),
        ("message.rejected", {"message_id": "m-2", "reason": "verification failed"}),
        ("rate_limited", {"limit": "max_dispatch_per_sec", "value": 20}),
        ("circuit.opened", {"downstream": "db", "failures": 3}),
        ("message.spooled", {"message_id": "m-3", "recv_seq": 1, "reason": "circuit open"}),
        ("message.spooled", {"message_id": "m-4", "recv_seq": 2, "reason": "circuit open"}),
        ("circuit.closed", {"downstream": "db", "probes": 2}),
        ("spool.draining", {"items": 2, "ordering": "per_key"}),
        ("message.replayed", {"message_id": "m-3", "recv_seq": 1}),
        ("message.dead_lettered", {"message_id": "m-4", "recv_seq": 2, "attempts": 3}),
        ("spool.recovered", {"items": 0}),
        ("paused", {"reason": "maintenance"}),
        ("resumed", {}),
        ("draining", {}),
        ("deactivated", {}),
    ]
    for verb, payload in script:
        spooled = stored(f"message {payload['message_id']}") if verb == "message.spooled" else None
        story.tell(f"subscription.{verb}", payload=payload, payload_ref=spooled, pause=7 * PAUSE, **itself)
    return [story.root]


def tenant(scribe: Scribe) -> list[str]:
    """A tenant from its creation to its end."""
    story = Story(scribe, f"tenant/{TENANT}", principal=SYSTEM)
    itself: Json = {"aggregate_type": "tenant", "aggregate_id": TENANT}
    story.tell("tenant.created", payload={"settings": {"plan": "team", "quota": {"executions": 1000}}}, **itself)
    story.tell("tenant.updated", payload={"settings": {"quota": {"executions": 5000}, "burst": 1.5}}, **itself)
    story.tell("tenant.suspended", payload={"reason": "payment overdue"}, **itself)
    story.tell("tenant.resumed", payload={"settings": {"plan": "enterprise"}}, **itself)
    story.tell("tenant.deleted", payload={"reason": "contract ended"}, pause=1800 * SECOND, **itself)
    return [story.root]


def patched(scribe: Scribe) -> list[str]:
    """Somebody changes `ctx` from outside while a step waits, and ends the execution by hand."""
    run = Run(scribe)
    run.begin("sales/close_month", "collect", {"month": "2026-02"}, set={"ctx.rate": 1.07, "ctx.limits.rows": 500})
    run.work("collect", "python", {"rows": 12}, set={"ctx.region": "north", "ctx.limits.seconds": 30})
    run.issue("approve", "http")
    run.tell("ctx.patched", payload={"set": {"ctx.rate": 1.08, "ctx.limits.rows": 900, "ctx.note": "by hand"}})
    run.tell("ctx.patched", payload={"unset": ["ctx.region", "ctx.limits.seconds", "ctx.never.there"]})
    run.tell("ctx.patched", payload={"unset": ["ctx.limits"], "set": {"ctx.approved_by": "ada"}})
    reason = fault("unknown", "FINALIZED", "the approval service is gone for good")
    run.tell(
        "playbook.failed",
        node_name="playbook",
        status="FAILED",
        payload={"final_step": "collect", "result": {"status": "ok"}, "error": reason, "reason": reason["message"]},
    )
    return [run.root]


def custody(scribe: Scribe) -> list[str]:
    """A tenant's credentials and tokens: what was stored, replaced, sealed anew and taken away."""
    story = Story(scribe, "tenant/acme-labs")
    crm: Json = {"aggregate_type": "credential", "aggregate_id": "crm"}
    sealed = {"type": "bearer", "key_id": "kek-1a2b3c4d", "fields": ["token"]}
    story.tell("credential.registered", payload={**sealed, "version": 1, "fingerprint": "11" * 16}, **crm)
    story.tell("credential.registered", payload={**sealed, "version": 2, "fingerprint": "22" * 16}, **crm)
    rotation = {"previous_key_id": "kek-1a2b3c4d", "key_id": "kek-5e6f7a8b"}
    story.tell("credential.rotated", payload=rotation, aggregate_type="credential", aggregate_id="*")
    for number, ends in (("01", "2026-06-15T00:00:00.000000Z"), ("02", None)):
        payload = {"name": f"ci-{number}", "roles": ["reader"], "expires_at": ends}
        story.tell("token.created", payload=payload, aggregate_type="token", aggregate_id=number * 8)
    story.tell(
        "token.revoked", payload={"name": "ci-01", "roles": ["reader"]}, aggregate_type="token", aggregate_id="01" * 8
    )
    story.tell("credential.removed", payload={"type": "bearer", "version": 2, "fingerprint": "22" * 16}, **crm)
    return [story.root]


def schedules(scribe: Scribe) -> list[str]:
    """A tenant's schedules: made, run, held, changed, run late and by hand, and taken away."""
    story = Story(scribe, "tenant/acme-nights")
    plan: Json = {
        "playbook": "reports/daily", "cron": "0 6 * * 1-5", "timezone": "Europe/Paris", "payload": {"region": "north"},
        "missed": "last", "overlap": "skip",
    }  # fmt: skip
    daily: Json = {"aggregate_type": "schedule", "aggregate_id": "daily"}

    def at(hour: int) -> str:
        return f"2026-03-04T{hour:02d}:00:00.000000Z"

    story.tell("schedule.created", payload=plan, **daily)
    hourly = {**plan, "playbook": "reports/hourly", "cron": "0 * * * *"}
    story.tell("schedule.created", payload=hourly, aggregate_type="schedule", aggregate_id="hourly")
    story.principal = SYSTEM
    fired = {"fire_time": at(5), "execution_id": "287056488038428672"}
    story.tell("schedule.fired", payload=fired, idempotency_key=f"schedule/daily/{at(5)}/fired", **daily)
    late = {"fire_time": at(6), "until": at(8), "count": 3, "reason": "late"}
    story.tell("schedule.missed", payload=late, **daily)
    story.principal = ADA
    story.tell("schedule.paused", **daily)
    story.tell("schedule.changed", payload={**plan, "cron": "30 6 * * *", "version": 3}, **daily)
    story.tell("schedule.resumed", **daily)
    by_hand = {"fire_time": at(9), "execution_id": "287056488038428673", "by_hand": True}
    story.tell("schedule.fired", payload=by_hand, **daily)
    story.tell("schedule.removed", aggregate_type="schedule", aggregate_id="hourly")
    refused = {"fire_time": at(10), "count": 1, "reason": "refused", "error": "there is no playbook reports/hourly"}
    story.tell("schedule.missed", payload=refused, aggregate_type="schedule", aggregate_id="hourly")
    return [story.root]


def holds(scribe: Scribe) -> list[str]:
    """Executions that a lawyer has asked for: held, for another reason, too, and let go."""
    story = Story(scribe, "tenant/acme-law")
    first: Json = {"aggregate_type": "hold", "aggregate_id": "287056488038428672"}
    second: Json = {"aggregate_type": "hold", "aggregate_id": "287056488038428673"}
    story.tell("hold.placed", payload={"reason": "case 4711"}, **first)
    story.tell("hold.placed", payload={"reason": "audit 2026"}, **second)
    story.tell("hold.placed", payload={"reason": "case 4711, appeal"}, **first)
    story.tell("hold.released", payload={"reason": "the audit is over"}, **second)
    return [story.root]
