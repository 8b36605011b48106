"""frame_fact: one row for each thing that happened to a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.data.history.facts.telling import HEAD, chosen, number, ref, said, seconds, told, where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["parts", "view"]

_TYPES = ("frame.dispatched", "frame.committed", "frame.failed", "frame.abandoned")
TIMINGS = """aggregate(map_values(from_json(get_json_object(said, '$.timings_ms'), 'map<string,double>')), 0D,
    (total, spent) -> total + spent)"""

_COLUMNS = {
    **HEAD,
    "stage_id": "stage_id",
    "frame_id": "coalesce(frame_id, event_id)",
    "step": "node_name",
    "transition": "split_part(kind, '.', 2)",
    "attempt": "bigint(attempt)",
    "slot": number(said("slot", older="worker_slot_id")),
    "frame_index": number(said("frame_index")),
    "worker_id": f"coalesce(get_json_object(meta, '$.worker_id'), {said('previous_owner')})",
    **where(),
    "rows": number(said("rows", older="row_count")),
    "rows_failed": number(said("outcomes.error")),
    "bytes": f"coalesce({number(ref('bytes'))}, {number(said('returned.bytes'))})",
    "media_type": ref("media_type"),
    "schema_digest": said("schema_digest"),
    "task_seconds": f"{TIMINGS} / 1e3",
    "error_kind": said("error.kind"),
    "error_code": said("error.code"),
}
_OF_FRAME = "OVER (PARTITION BY tenant_id, frame_id ORDER BY position ROWS UNBOUNDED PRECEDING)"
_BEFORE = "OVER (PARTITION BY tenant_id, frame_id ORDER BY position)"


def parts(events: DataFrame) -> DataFrame:
    """A row for each event of a frame, heartbeats and starts apart."""
    return chosen(told(events, _TYPES), _COLUMNS)


def view(made: DataFrame) -> DataFrame:
    """With how often the frame was given out again, and how long whoever had it has kept it."""
    kept = ("slot", "frame_index")
    return chosen(
        made,
        {
            **{name: name for name in _COLUMNS},
            **{name: f"first_value({name}, true) {_OF_FRAME}" for name in kept},
            "retries": f"greatest(count_if(transition = 'dispatched') {_OF_FRAME} - 1, 0)",
            "seconds": f"CASE WHEN transition <> 'dispatched' THEN {seconds('at', f'lag(at) {_BEFORE}')} END",
        },
    )
