"""Executions with data stages: frames, fan-out and reduce, and the larger sample."""

from __future__ import annotations

from noetl.kernel.event import Json
from noetl.kernel.names import FrameCoordinates
from tests.golden.telling import PAUSE, SECOND, Run, Stage, fault, stored
from tests.scribe import Scribe


def frames(scribe: Scribe) -> list[str]:
    """A stage in frames: one is abandoned and run again, one fails for good, telemetry is sealed twice."""
    run = Run(scribe)
    run.begin("sales/enrich_customers", "enrich", {"source": "customers"})
    command = run.issue("enrich", "spark", input={"cursor": "pg_main"})
    run.say(*run.taken(command, "enrich", "spark-1"))
    stage = Stage(run, "enrich", "loop", command, loop_id="enrich/1")
    stage.start("local-1")
    run.beat(command, "enrich", "spark-1")
    first, second, third = (stage.dispatch(slot, 0, f"spark-{slot + 1}") for slot in range(3))
    for slot, frame in enumerate((first, second, third)):
        stage.started(frame, f"spark-{slot + 1}")
        stage.beat(frame, f"spark-{slot + 1}")
    stage.commit(first, "spark-1", 50)
    run.seal_telemetry(final=False)
    stage.abandon(second, "spark-2")
    stage.dispatch(1, 0, "spark-1", frame_id=second, attempt=2, previous_owner="spark-2")
    stage.started(second, "spark-1")
    stage.beat(second, "spark-1")
    stage.commit(second, "spark-1", 50, failed=2, attempt=2)
    broken = fault("transform", "PY_ValueError", "customer 4711 has no country", retryable=False)
    for attempt in (2, 3):
        stage.abandon(third, "spark-3")
        stage.dispatch(2, 0, "spark-3", frame_id=third, attempt=attempt, previous_owner="spark-3")
        stage.started(third, "spark-3")
    stage.fail(third, "spark-3", broken, attempt=3)
    stage.close()
    context = {"rows": 100, "stats": {"total": 150, "success": 98, "failed": 52, "frames": 3}}
    run.say(*run.done(command, "enrich", "spark-1", context))
    run.seal_telemetry(final=True)
    run.end("enrich", context)
    return [run.root]


def fanout_reduce(scribe: Scribe) -> list[str]:
    """A fan-out into partitions and a reduce over them: the second stage and its frames name the first's."""
    run = Run(scribe)
    run.begin("sales/basket_stats", "split", {"day": "2026-03-01"})
    command = run.issue("split", "spark")
    run.say(*run.taken(command, "split", "spark-1"))
    fanout = Stage(run, "split", "fanout", command)
    parts = [fanout.dispatch(slot, 0, f"spark-{slot % 2 + 1}") for slot in range(4)]
    for slot, part in enumerate(parts):
        fanout.started(part, f"spark-{slot % 2 + 1}")
    for slot in (2, 0, 3, 1):
        fanout.commit(parts[slot], f"spark-{slot % 2 + 1}", 1000 + slot)
    fanout.close()
    run.say(*run.done(command, "split", "spark-1", {"partitions": 4, "rows": 4006}))
    command = run.issue("reduce", "spark")
    run.say(*run.taken(command, "reduce", "spark-2"))
    reduce = Stage(run, "reduce", "reduce", command, parent_stage_id=str(fanout.id))
    merged = reduce.dispatch(0, 0, "spark-2", parent_frame_id=str(parts[0]))
    reduce.started(merged, "spark-2")
    reduce.commit(merged, "spark-2", 12)
    reduce.close()
    run.say(*run.done(command, "reduce", "spark-2", {"categories": 12}, set={"ctx.categories": 12}))
    run.end("reduce", {"categories": 12})
    return [run.root]


def told(scribe: Scribe) -> list[str]:
    """A cursor loop of small frames: the rows that were claimed, and what they have returned, stand in the events."""
    run = Run(scribe)
    run.begin("sales/small_frames", "drain", {"pg": "pg_main"})
    drain = Stage.entered(
        run, "drain", "loop", slots=1, failure="best_effort", engine="spark", frame_policy={"max_rows": 3},
        source={"cursor": {"kind": "postgres", "auth": "{{ pg }}", "claim": "SELECT 1"}},
    )  # fmt: skip
    returned: list[Json] = [
        {
            "results": [{"message": "UPDATE 1", "row_count": 1}],
            "columns": ["row_count", "message"],
            "bytes": 38,
            "which": [0, 0, 0],
        },
        {"results": [{"message": "UPDATE 1"}, None], "bytes": 26, "which": [0, 1], "at": [0, 2]},
        {"results": [1.5, "ü"], "bytes": 7},
    ]
    for index, said in enumerate(returned):
        rows = [{"id": index * 3 + place} for place in range(2 if index == 2 else 3)]
        frame = drain.dispatch(0, index, "spark-1", row_count=len(rows), base_index=index * 3, inline=rows)
        drain.started(frame, "spark-1")
        drain.commit_told(frame, "spark-1", len(rows), said)
    stats = {"total": 8, "success": 7, "failed": 1, "slots": 1, "frames": 3, "breaks": 0, "bytes": 71}
    result = {"status": "ok", "context": {"results": [], "stats": stats, "count": 8}}
    run.say(
        *run.taken(drain.command_id, "drain", "worker-1"),
        drain.closed("COMPLETED", stats),
        run.draft("step.exit", node_name="drain", status="COMPLETED", payload={"arcs": []}),
        run.about("command.completed", drain.command_id, "drain", status="COMPLETED"),
    )
    run.end("drain", result)
    return [run.root]


def drained(scribe: Scribe) -> list[str]:
    """A cursor loop as the engine enters it, a frame that reached a soft limit, and a reduce cut off by a cancel."""
    run = Run(scribe)
    run.begin("sales/work_queue", "drain", {"pg": "pg_main"})
    policy: Json = {
        "max_rows": 5,
        "max_seconds": 2.5,
        "lease_seconds": 60.0,
        "heartbeat_seconds": 15.0,
        "process": "row",
    }
    loop_id = "drain/1"
    opened = run.draft("loop.opened", aggregate_type="loop", aggregate_id=loop_id, node_name="drain", status="RUNNING",
                       payload={"epoch": 1, "mode": "cursor", "iterator": "todo", "max_in_flight": 2})  # fmt: skip
    source = {"cursor": {"kind": "postgres", "auth": "{{ pg }}", "claim": "SELECT 1"}}
    drain = Stage.entered(run, "drain", "loop", opened, loop_id=loop_id, frame_policy=policy, slots=2, source=source,
                          failure="best_effort", engine="auto")  # fmt: skip
    first = drain.dispatch(0, 0, "host-1/0", row_count=5, base_index=0)
    drain.started(first, "host-1/0")
    drain.commit(first, "host-1/0", 3, set={"ctx.last": 3})
    rest = drain.dispatch(
        0, 1, "host-1/0", row_count=2, base_index=3, parent_frame_id=first, claim_index=0, claim_row=3
    )
    drain.started(rest, "host-1/0")
    drain.commit(rest, "host-1/0", 2, failed=1, set={"ctx.last": 5})
    stats = {"total": 5, "success": 4, "failed": 1, "slots": 2, "frames": 2, "breaks": 0}
    slots = [
        {"slot": 0, "processed": 5, "failed": 1, "frames": 2},
        {"slot": 1, "processed": 0, "failed": 0, "frames": 0},
    ]
    result = {"status": "ok", "context": {"results": slots, "stats": stats, "count": 5}}
    run.say(
        *run.taken(drain.command_id, "drain", "worker-1"),
        drain.closed("COMPLETED", stats, set={"ctx.last": 5}),
        run.about("loop.done", drain.command_id, "drain", aggregate_type="loop", aggregate_id=loop_id,
                  stage_id=drain.id, status="COMPLETED", payload={"stats": stats, "result": result}),
        run.draft("step.exit", node_name="drain", status="COMPLETED", payload={"arcs": ["report"]}),
        run.about("command.completed", drain.command_id, "drain", status="COMPLETED"),
    )  # fmt: skip
    report = Stage.entered(run, "report", "reduce", frame_policy=policy, slots=8, failure="fail_at_end", engine="auto",
                           source={"groups": {"step": "drain", "stage_id": drain.id}, "by": ["region"]},
                           parent_stage_id=drain.id)  # fmt: skip
    group = report.dispatch(0, 0, "host-1/3", row_count=1, slice={"part": 0})
    report.started(group, "host-1/3")
    run.tell("playbook.cancelled", node_name="playbook", status="CANCELLED", payload={"reason": "enough"})
    report.abandon(group, "host-1/3")
    run.say(
        *run.taken(report.command_id, "report", "worker-1", enter=False),
        report.closed("CANCELLED", {"total": 0, "success": 0, "failed": 0}),
        run.about("command.cancelled", report.command_id, "report", status="CANCELLED"),
    )
    return [run.root]


def orders(scribe: Scribe) -> list[str]:
    """A small orders pipeline: extract, a loop over five regions, a stage in six frames, orders as objects."""
    run = Run(scribe)
    regions = ["eu", "uk", "us", "apac", "latam"]
    run.begin(
        "sales/orders_daily",
        "extract",
        {"day": "2026-03-01", "regions": regions},
        version=4,
        set={"ctx.day": "2026-03-01"},
    )
    _extract(run)
    _by_region(run, regions)
    _load(run)
    _publish(run)
    run.end("publish", {"orders": 287, "revenue": "41230.75", "failed_rows": 3})
    return [run.root]


def _extract(run: Run) -> None:
    content = '{"rows":290}'
    run.work(
        "extract",
        "postgres",
        {"rows": 290, "columns": ["order_id", "region", "amount"]},
        input={"auth": "pg_main", "query": "SELECT order_id, region, amount FROM orders WHERE day = %(day)s"},
        result={"reference": run.reference("extract", size=48_120, content=content)},
        payload_ref=stored(content),
        set={"ctx.extracted": 290},
    )


def _by_region(run: Run, regions: list[str]) -> None:
    loop_id = "by_region/1"
    opened: Json = {"epoch": 1, "mode": "parallel", "iterator": "region", "total": len(regions)}
    run.tell("loop.opened", aggregate_type="loop", aggregate_id=loop_id, node_name="by_region", payload=opened)
    counts = {"eu": 120, "uk": 64, "us": 71, "apac": 22, "latam": 13}
    commands = {
        region: run.issue("by_region", "http", loop_id=loop_id, loop_index=index, input={"region": region})
        for index, region in enumerate(regions)
    }
    for region in ("uk", "eu", "latam", "us", "apac"):
        worker = f"worker-{regions.index(region) % 2 + 1}"
        run.say(
            *run.taken(commands[region], "by_region", worker, enter=region == "uk"),
            *run.done(
                commands[region], "by_region", worker, {"region": region, "orders": counts[region], "fx_rate": 1.0825},
                exits=False, set={f"ctx.orders.{region}": counts[region]},
            ),
        )  # fmt: skip
    run.say(
        run.draft(
            "loop.done", aggregate_type="loop", aggregate_id=loop_id, node_name="by_region", status="COMPLETED",
            payload={"stats": {"total": 5, "success": 5, "failed": 0}},
        ),
        run.draft("step.exit", node_name="by_region", status="COMPLETED"),
    )  # fmt: skip


def _load(run: Run) -> None:
    command = run.issue("load", "spark", input={"table": "lake.orders"})
    run.say(*run.taken(command, "load", "spark-1"))
    stage = Stage(run, "load", "loop", command, loop_id="load/1")
    stage.start("local-1")
    rows = [50, 50, 50, 50, 50, 40]
    ids = [stage.dispatch(index % 2, index // 2, f"spark-{index % 2 + 1}") for index in range(len(rows))]
    for index, frame in enumerate(ids):
        stage.started(frame, f"spark-{index % 2 + 1}")
    run.beat(command, "load", "spark-1")
    for index in (0, 1, 2):
        stage.commit(ids[index], f"spark-{index % 2 + 1}", rows[index], failed=int(index == 1))
    stage.beat(ids[3], "spark-2")
    stage.commit(ids[4], "spark-1", rows[4])
    stage.abandon(ids[3], "spark-2")
    stage.dispatch(1, 1, "spark-1", frame_id=ids[3], attempt=2, previous_owner="spark-2")
    stage.started(ids[3], "spark-1")
    place = FrameCoordinates(epoch=1, slot=1, index=1)
    stage.commit(ids[3], "spark-1", rows[3], failed=2, attempt=2, result=run.address("load", frame=place, attempt=2))
    stage.commit(ids[5], "spark-2", rows[5])
    stage.close()
    context = {"rows": 290, "stats": {"total": 290, "success": 287, "failed": 3, "frames": 6}}
    run.say(*run.done(command, "load", "spark-1", context, set={"ctx.loaded": 287}))
    run.seal_telemetry(final=True)


def _publish(run: Run) -> None:
    placed: list[tuple[str, Json]] = [
        ("7001", {"customer": "C-17", "amount": "129.90", "region": "eu"}),
        ("7002", {"customer": "C-23", "amount": "58.00", "region": "uk"}),
        ("7003", {"customer": "C-17", "amount": "1020.45", "region": "eu"}),
    ]
    for number, attributes in placed:
        _object(run, "created", number, {"status": "PLACED", "version": 1, "attributes": attributes})
    changes: Json = {"status": "SHIPPED", "version": 2, "attributes": {"carrier": "DHL", "parcels": 1}}
    _object(run, "updated", "7001", changes)
    _object(run, "updated", "7003", {**changes, "attributes": {"carrier": "UPS", "parcels": 3}})
    _object(run, "deleted", "7002", {"status": "CANCELLED", "version": 2})
    run.work("publish", "nats", {"subject": "sales.orders.daily", "messages": 3}, worker="worker-2")


def _object(run: Run, verb: str, number: str, payload: Json) -> None:
    run.tell(
        f"business_object.{verb}",
        aggregate_type="business_object",
        aggregate_id=f"order/{number}",
        correlation_id=f"order/{number}",
        payload=payload,
        payload_ref=stored(f"order {number} {verb}") if verb == "created" else None,
        pause=PAUSE + SECOND,
    )
