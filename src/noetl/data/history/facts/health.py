"""health_fact: the events that say that something did not go well, or goes well again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.data.history.facts.telling import HEAD, chosen, number, said, told, where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["parts"]

_SEVERITIES = {
    "playbook.failed": "error",
    "command.route.failed": "error",
    "frame.failed": "error",
    "loop.stalled": "error",
    "batch.failed": "error",
    "subscription.circuit.opened": "error",
    "subscription.message.dead_lettered": "error",
    "command.abandoned": "warning",
    "frame.abandoned": "warning",
    "schedule.missed": "warning",
    "subscription.rate_limited": "warning",
    "subscription.message.rejected": "warning",
    "subscription.message.spooled": "warning",
    "subscription.circuit.closed": "recovered",
    "subscription.spool.recovered": "recovered",
}
_COLUMNS = {
    **HEAD,
    "signal": "kind",
    "severity": "CASE kind " + " ".join(f"WHEN '{kind}' THEN '{name}'" for kind, name in _SEVERITIES.items()) + " END",
    "subject": "stream_id",
    "step": "node_name",
    "worker_id": f"coalesce(get_json_object(meta, '$.worker_id'), {said('previous_owner')})",
    **where(),
    "reason": f"coalesce({said('reason')}, {said('error.message')}, {said('limit')}, {said('downstream')})",
    "count": f"coalesce({number(said('count'))}, 1)",
}


def parts(events: DataFrame) -> DataFrame:
    """A row for each such event."""
    return chosen(told(events, _SEVERITIES), _COLUMNS)
