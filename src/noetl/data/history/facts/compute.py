"""compute_fact: one row for each time that somebody worked on a command or a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.data.history.facts.frames import TIMINGS
from noetl.data.history.facts.money import cost_of, price_of_second
from noetl.data.history.facts.telling import HEAD, chosen, real, said, seconds, told, where
from noetl.history import Prices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["parts", "view"]

_PHASES = {
    "command.issued": "asked",
    "command.resumed": "asked",
    "command.claimed": "claimed",
    "frame.dispatched": "claimed",
    "command.started": "started",
    "frame.started": "started",
    "call.done": "called",
    "call.error": "called",
    "command.completed": "ended",
    "command.failed": "ended",
    "command.cancelled": "ended",
    "command.suspended": "ended",
    "command.abandoned": "ended",
    "frame.committed": "ended",
    "frame.failed": "ended",
    "frame.abandoned": "ended",
}
_COLUMNS = {
    **HEAD,
    "unit": "CASE WHEN kind LIKE 'frame.%' THEN 'frame' ELSE 'command' END",
    "unit_id": "coalesce(CASE WHEN kind LIKE 'frame.%' THEN frame_id ELSE command_id END, event_id)",
    "stage_id": "stage_id",
    "step": "node_name",
    "phase": "CASE kind " + " ".join(f"WHEN '{kind}' THEN '{phase}'" for kind, phase in _PHASES.items()) + " END",
    "status": "CASE WHEN kind = 'frame.committed' THEN 'COMPLETED' ELSE upper(split_part(kind, '.', 2)) END",
    "tool": said("kind"),
    "pool": said("pool"),
    "worker_id": "get_json_object(meta, '$.worker_id')",
    **where(),
    "spent_ms": f"""CASE WHEN kind LIKE 'call.%' THEN coalesce({real(said("output.meta.duration_ms"))},
        {real("get_json_object(meta, '$.duration_ms')")}) WHEN kind = 'frame.committed' THEN {TIMINGS} END""",
}
_UNIT = "tenant_id, unit, unit_id"
_IN_ORDER = f"OVER (PARTITION BY {_UNIT} ORDER BY position ROWS UNBOUNDED PRECEDING)"
_CLAIMED, _ENDED = "FILTER (WHERE phase = 'claimed')", "FILTER (WHERE phase = 'ended')"
_SAME = ("organization_id", "project_id", "execution_id", "stage_id", "step", "tool", "pool", "worker_id", "region",
         "zone", "cluster", "node")  # fmt: skip
_CLAIM = {
    **{name: f"max({name})" for name in _SAME},
    "asked_at": f"coalesce(max(before) {_CLAIMED}, max(at) {_CLAIMED})",
    "claimed_at": f"max(at) {_CLAIMED}",
    "started_at": f"coalesce(min(at) FILTER (WHERE phase = 'started'), max(at) {_CLAIMED})",
    "ended_at": f"max(at) {_ENDED}",
    "status": f"max(status) {_ENDED}",
    "spent_seconds": "coalesce(sum(spent_ms), 0) / 1e3",
    "ingest_time": "max(ingest_time)",
    "position": f"coalesce(max(position) {_ENDED}, max(position))",
    "event_id": f"coalesce(max(event_id) {_ENDED}, max(event_id))",
}


def parts(events: DataFrame) -> DataFrame:
    """A row for each event in the life of a command or a frame."""
    return chosen(told(events, _PHASES), _COLUMNS)


def view(made: DataFrame, prices: Prices) -> DataFrame:
    """One row for each claim, from when it was asked for until it ended.

    A process that works on its own commands records their beginning together with their end. How long they took is
    then what their calls have measured. What a stage costs are its frames: its command only waits for them.
    """
    from pyspark.sql import functions as fn

    in_order = {
        "tool": f"first_value(tool, true) {_IN_ORDER}",
        "pool": f"first_value(pool, true) {_IN_ORDER}",
        "claim": f"count_if(phase = 'claimed') {_IN_ORDER}",
        "before": f"lag(at) OVER (PARTITION BY {_UNIT} ORDER BY position)",
    }
    claims = (
        chosen(made, {**{name: name for name in _COLUMNS}, **in_order})
        .where("claim > 0")
        .groupBy("tenant_id", "unit", "unit_id", "claim")
        .agg(*(fn.expr(expression).alias(name) for name, expression in _CLAIM.items()))
    )
    pools = (
        made.where("phase = 'asked' AND stage_id IS NOT NULL")
        .groupBy("tenant_id", "stage_id")
        .agg(fn.max("pool").alias("stage_pool"))
    )
    timed = claims.join(pools, ["tenant_id", "stage_id"], "left").withColumns(
        {
            "pool": fn.expr("coalesce(pool, stage_pool)"),
            "run_seconds": fn.expr(f"greatest({seconds('ended_at', 'started_at')}, spent_seconds)"),
        }
    )
    billed = timed.withColumn(
        "billed_seconds",
        fn.expr("CASE WHEN (unit = 'command' AND tool = 'stage') OR worker_id = 'engine' THEN 0D ELSE run_seconds END"),
    )
    return chosen(billed, _SHOWN | {"cost": cost_of("billed_seconds", price_of_second(prices))})


_SHOWN = {
    **{
        name: name
        for name in ("tenant_id", "organization_id", "project_id", "execution_id", "unit", "unit_id", "claim")
    },
    **{name: name for name in ("stage_id", "step", "tool", "pool", "worker_id", "region", "zone", "cluster", "node")},
    **{name: name for name in ("status", "asked_at", "claimed_at", "ended_at")},
    "queue_seconds": f"greatest({seconds('ended_at', 'asked_at')} - run_seconds, 0D)",
    "run_seconds": "run_seconds",
    "billed_seconds": "billed_seconds",
    **{name: name for name in ("ingest_time", "position", "event_id")},
}
