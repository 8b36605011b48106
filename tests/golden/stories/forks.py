"""An execution that failed, and the one that went on from it."""

from __future__ import annotations

from typing import Any

from noetl.kernel.event import Json
from tests.golden.telling import SECOND, Run, fault, stored
from tests.scribe import Scribe

PATH = "sales/nightly_load"


def retried(scribe: Scribe) -> list[str]:
    """A load fails after two good steps; once it is mended a new execution adopts them and loads."""
    source = Run(scribe)
    source.begin(PATH, "fetch", {"day": "2026-03-01"})
    rows = stored('{"result":{"status":"ok","context":{"rows":"many"}}}')
    fetched: Json = {"reference": source.reference("fetch", size=rows.bytes, content="rows")}
    source.work("fetch", "http", {"count": 1200}, result=fetched, payload_ref=rows, set={"ctx.count": 1200})
    source.work("convert", "python", {"rate": 1.07}, set={"ctx.rates.eur": 1.07, "ctx.cutoff": "18:00"})
    command = source.issue("load", "postgres")
    error = fault("db_constraint", "PG_23505", "duplicate key")
    source.say(*source.taken(command, "load", "worker-2"), *source.broken(command, "load", "worker-2", error))
    source.fail("load", error)
    scribe.now += 600 * SECOND
    fork = Run(scribe, principal="user:grace@acme.example")
    origin = {"execution_id": source.id, "event_id": command - 1, "step": "load"}
    begin_fork(fork, origin, {"count": 1200, "rates": {"eur": 1.07}, "cutoff": "18:00"})
    adopted: list[Json] = [
        {
            "node_name": "fetch",
            "payload": done(source, "fetch", "http", {"count": 1200}, **fetched),
            "payload_ref": rows,
        },
        {"node_name": "convert", "payload": done(source, "convert", "python", {"rate": 1.07})},
    ]
    fork.say(*(fork.draft("step.adopted", status="COMPLETED", **one) for one in adopted))
    moves = [{"op": "enter", "token": "t1", "step": "load", "sender": "convert"}]
    fork.tell("workflow.initialized", node_name="load", status="RUNNING", payload={"moves": moves})
    fork.work("load", "postgres", {"inserted": 1200}, set={"ctx.rates.usd": 1.16})
    fork.end("load", {"inserted": 1200})
    return [source.root, fork.root]


def begin_fork(fork: Run, origin: Json, ctx: Json) -> None:
    """`playbook.initialized` of an execution that goes on from another one."""
    payload: Json = {
        "path": PATH,
        "document": {"sha256": "5e" * 32, "path": PATH, "origin": "catalog", "entry": "fetch"},
        "workload": {"day": "2026-03-01"},
        "root_execution_id": fork.id,
        "ctx": ctx,
        "forked_from": origin,
    }
    fork.tell("playbook.initialized", status="PENDING", payload=payload)


def done(source: Run, step: str, kind: str, context: Json, **result: Any) -> Json:
    """What a fork says of a step run that it adopts."""
    log = source.scribe.of_root(source.root)
    (event_id,) = [event.event_id for event in log if event.event_type == "call.done" and event.node_name == step]
    return {
        "run": 1,
        "kind": kind,
        "event_name": "call.done",
        "result": {"status": "ok", "context": context, **result},
        "source": {"execution_id": source.id, "event_id": event_id},
    }
