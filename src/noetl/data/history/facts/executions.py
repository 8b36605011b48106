"""execution_fact: one row for each status that an execution has come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.data.history.facts.money import MONEY
from noetl.data.history.facts.telling import bare, chosen, number, ref, said, seconds, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["parts", "view"]

_STATUSES = {
    "playbook.initialized": "PENDING",
    "workflow.initialized": "RUNNING",
    "playbook.completed": "COMPLETED",
    "playbook.failed": "FAILED",
    "playbook.cancelled": "CANCELLED",
}
_COUNTED = {
    "events": "1",
    "steps": "kind = 'step.enter'",
    "commands": "kind = 'command.issued'",
    "calls": "kind IN ('call.done', 'call.error')",
    "errors": "kind IN ('call.error', 'frame.failed')",
    "retries": "kind IN ('command.abandoned', 'frame.abandoned')",
    "frames": "kind = 'frame.committed'",
}
# The shard is the lowest byte of an FNV-1a hash (`kernel.names.shards`), and no higher byte of one step of the hash
# reaches a lower one of the next.
_SHARD = """aggregate(
    transform(sequence(1, length(hex(affinity)), 2), at -> cast(conv(substr(hex(affinity), at, 2), 16, 10) AS int)),
    37, (digest, byte) -> ((digest ^ byte) * 179) % 256)"""


def parts(events: DataFrame) -> DataFrame:
    """A row for each transition in a range of events, with what was counted since the one before it, and a row without
    a transition for what comes after the last."""
    from pyspark.sql import functions as fn

    known = bare(events.where("execution_id IS NOT NULL"))
    is_transition = fn.col("kind").isin(list(_STATUSES))
    counted = chosen(
        known,
        {
            "tenant_id": "tenant_id",
            "execution_id": "execution_id",
            "position": "position",
            "is_transition": "kind IN (" + ", ".join(f"'{kind}'" for kind in _STATUSES) + ")",
            **{name: f"int({test})" for name, test in _COUNTED.items()},
            "rows": f"""CASE WHEN kind = 'frame.committed' THEN coalesce({number("get_json_object(payload, '$.rows')")},
                {number("get_json_object(payload, '$.context.row_count')")}) END""",
            "bytes": number(ref("bytes")),
        },
    )
    totals = [fn.coalesce(fn.sum(name), fn.lit(0)).cast("bigint").alias(name) for name in _TOTALS]
    summed = (
        counted.withColumn("segment", fn.expr(_SEGMENT))
        .groupBy("tenant_id", "execution_id", "segment")
        .agg(fn.max("position").alias("position"), *totals)
        .drop("segment")
    )
    marks = chosen(told(known.where(is_transition), _STATUSES), _MARK).withColumn(
        "shard", fn.expr(f"CASE WHEN affinity IS NOT NULL THEN {_SHARD} END")
    )
    return summed.join(marks.drop("affinity"), ["tenant_id", "execution_id", "position"], "left")


_SEGMENT = """count_if(is_transition) OVER (PARTITION BY tenant_id, execution_id ORDER BY position
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""

_ROOT = f"coalesce({said('root_execution_id')}, string(execution_id))"
_MARK = {
    "tenant_id": "tenant_id",
    "execution_id": "execution_id",
    "position": "position",
    "organization_id": "organization_id",
    "project_id": "project_id",
    "status": "CASE kind " + " ".join(f"WHEN '{kind}' THEN '{name}'" for kind, name in _STATUSES.items()) + " END",
    "at": "event_time",
    "ingest_time": "ingest_time",
    "event_id": "event_id",
    "principal": "CASE WHEN kind = 'playbook.initialized' THEN principal END",
    "parent_execution_id": "parent_execution_id",
    "root_execution_id": f"CASE WHEN kind = 'playbook.initialized' THEN {number(_ROOT)} END",
    "path": said("path"),
    "region": said("home.region"),
    "cell": said("home.cell"),
    "step": "coalesce(" + said("final_step") + ", node_name)",
    "error_kind": said("error.kind"),
    "error_code": said("error.code"),
    "affinity": f"CASE WHEN kind = 'playbook.initialized' THEN concat_ws(chr(0), tenant_id, project_id, {_ROOT}) END",
}

_SO_FAR = "OVER (PARTITION BY tenant_id, execution_id ORDER BY position, status NULLS FIRST ROWS UNBOUNDED PRECEDING)"
_BEFORE = "OVER (PARTITION BY tenant_id, execution_id ORDER BY position)"
_TOTALS = (*_COUNTED, "rows", "bytes")
_KEPT = ("organization_id", "project_id", "path", "principal", "parent_execution_id", "root_execution_id", "region",
         "cell", "shard")  # fmt: skip


def view(made: DataFrame, compute: DataFrame) -> DataFrame:
    """The transitions among all parts: the first end of an execution stands, as in a fold."""
    work = chosen(
        compute.where("status IS NOT NULL"),
        {
            "tenant_id": "tenant_id",
            "execution_id": "execution_id",
            "position": "position",
            "compute_seconds": "billed_seconds",
            "cost": "cost",
        },
    )
    running = chosen(
        made.unionByName(work, allowMissingColumns=True),
        {
            "tenant_id": "tenant_id",
            **{name: f"first_value({name}, true) {_SO_FAR}" for name in _KEPT},
            "execution_id": "execution_id",
            "status": "status",
            "at": "at",
            "started_at": f"first_value(at, true) {_SO_FAR}",
            **{name: f"coalesce(sum({name}) {_SO_FAR}, 0)" for name in _TOTALS},
            "compute_seconds": f"coalesce(sum(compute_seconds) {_SO_FAR}, 0)",
            "cost": f"coalesce(sum(cost) {_SO_FAR}, 0)",
            **{name: name for name in ("step", "error_kind", "error_code", "ingest_time", "position", "event_id")},
            "ends": f"count_if(status IN ('COMPLETED', 'FAILED', 'CANCELLED')) {_SO_FAR}",
        },
    )
    transitions = running.where(
        "status IS NOT NULL AND (ends = 0 OR (ends = 1 AND status NOT IN ('PENDING', 'RUNNING')))"
    )
    return chosen(
        transitions,
        {
            **{name: name for name in ("tenant_id", *_KEPT, "execution_id", "status", "at")},
            "duration_seconds": seconds("at", "started_at"),
            "since_previous_seconds": seconds("at", f"lag(at) {_BEFORE}"),
            **{name: f"CAST({name} AS bigint)" for name in _TOTALS},
            "compute_seconds": "CAST(compute_seconds AS double)",
            "cost": f"CAST(cost AS {MONEY})",
            **{name: name for name in ("step", "error_kind", "error_code", "ingest_time", "position", "event_id")},
        },
    )
