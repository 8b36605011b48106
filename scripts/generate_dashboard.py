"""Write deploy/grafana/noetl.json: a dashboard over the metrics of docs/reference/metrics.md.

    python scripts/generate_dashboard.py [--check]

With --check nothing is written, and a file that is out of date is an error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "noetl.json"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDE, _HIGH = 8, 7
_PER_LINE = 24 // _WIDE


class Panel(NamedTuple):
    """One picture: its title, its unit, and what it shows, each with its legend."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""


def rate(metric: str, by: str = "") -> str:
    """How much a counter grows in a second, over all processes."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "") -> str:
    """A quantile of a histogram, over all processes."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"


def times(metric: str) -> tuple[tuple[str, str], ...]:
    """The usual three of a histogram of times."""
    return tuple((quantile(share, metric), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99))


ROWS: dict[str, tuple[Panel, ...]] = {
    "Executions": (
        Panel("Executions", "ops", (
            (rate("noetl_executions_started_total"), "started"),
            (rate("noetl_executions_ended_total", "status"), "{{status}}"),
        )),
        Panel("Requests by status", "reqps", ((rate("noetl_http_requests_total", "status"), "{{status}}"),)),
        Panel("Time to answer a request", "s", times("noetl_http_request_seconds")),
        Panel("Requests refused", "reqps", ((rate("noetl_auth_refused_total", "reason"), "{{reason}}"),)),
        Panel("Releases", "short", (("count by (version) (noetl_build_info)", "{{version}}"),)),
    ),
    "Commands and workers": (
        Panel("Time from issued to claimed", "s", times("noetl_command_wait_seconds")),
        Panel("Time from claimed to reported, p95", "s",
              ((quantile(0.95, "noetl_command_run_seconds", "kind"), "{{kind}}"),)),
        Panel("Commands ended", "ops", ((rate("noetl_commands_total", "kind, outcome"), "{{kind}} {{outcome}}"),)),
        Panel("Queue by pool", "short",
              (("max by (pool, state) (noetl_queue_commands)", "{{pool}} {{state}}"),),
              "Every worker of a pool sees the same queue, so the largest is shown, not the sum."),
        Panel("Slots", "short", (
            ("sum (noetl_worker_slots_busy)", "busy"), ("sum (noetl_queue_depth)", "waiting inside servers"),
        )),
        Panel("Leases lapsed, decisions made again", "ops", (
            (rate("noetl_leases_lapsed_total"), "leases lapsed"), (rate("noetl_driver_conflicts_total"), "conflicts"),
        )),
        Panel("Effect barrier", "ops", ((rate("noetl_effect_barrier_total", "outcome"), "{{outcome}}"),)),
    ),
    "Ledger and outbox": (
        Panel("Time until an append is durable", "s", times("noetl_append_seconds")),
        Panel("Events written", "ops", ((rate("noetl_append_events_sum"), "events"),)),
        Panel("Outbox: not yet published", "short", (("max (noetl_outbox_pending)", "events"),)),
        Panel("Outbox: age of the oldest", "s", (("max (noetl_outbox_oldest_seconds)", "age"),)),
        Panel("Outbox: published", "ops", (
            (rate("noetl_outbox_published_total"), "published"), (rate("noetl_outbox_failed_total"), "failed"),
            (rate("noetl_outbox_refilled_total"), "published again"),
            (rate("noetl_outbox_requeued_total"), "commands queued again"),
        )),
        Panel("Outbox: time to hand over a batch", "s", times("noetl_outbox_publish_seconds")),
    ),
    "Log on JetStream": (
        Panel("Events that the table has not", "short", (("max (noetl_materializer_lag_events)", "events"),)),
        Panel("Age of what was copied last", "s", (("max (noetl_materializer_lag_seconds)", "age"),)),
        Panel("Position of the table", "short", (("max (noetl_materializer_position)", "position"),)),
        Panel("Events copied, messages that do not count", "ops", (
            (rate("noetl_materializer_events_total"), "copied"), (rate("noetl_wal_void_total"), "void"),
        )),
        Panel("Time to copy a batch", "s", times("noetl_materializer_batch_seconds")),
    ),
    "Leaders, schedules and quotas": (
        Panel("Leaders", "short", (("sum by (what) (noetl_leader)", "{{what}}"),),
              "One process leads each duty; for longer than a lease it is never none, and never two."),
        Panel("Changes of leaders", "ops", ((rate("noetl_leader_changes_total", "what"), "{{what}}"),)),
        Panel("Times of schedules", "ops", ((rate("noetl_schedule_times_total", "outcome"), "{{outcome}}"),)),
        Panel("Schedules: from due to begun", "s", times("noetl_schedule_delay_seconds")),
        Panel("Refused by a quota", "ops", ((rate("noetl_quota_refused_total", "limit"), "{{limit}}"),)),
    ),
    "Projectors": (
        Panel("Events that wait", "short", (
            ("max by (share) (noetl_projector_lag_events)", "{{share}}"),
            ("max (noetl_projection_lag_events)", "rows behind the log"),
        )),
        Panel("Age of what was projected last", "s", (("max by (share) (noetl_projector_lag_seconds)", "{{share}}"),)),
        Panel("Position", "short", (
            ("max by (share) (noetl_projector_position)", "{{share}} told of"),
            ("max by (share) (noetl_projector_checkpoint)", "{{share}} checkpoint"),
        )),
        Panel("Deliveries", "ops", (
            (rate("noetl_projector_deliveries_total", "outcome"), "{{outcome}}"),
            (rate("noetl_projector_redeliveries_total"), "delivered again"),
        )),
        Panel("Delivered and not settled", "short",
              (("max by (share) (noetl_projector_unsettled_events)", "{{share}}"),)),
        Panel("Time for a batch", "s", times("noetl_projector_batch_seconds")),
        Panel("Rows", "ops", ((rate("noetl_projector_rows_total", "outcome"), "{{outcome}}"),)),
        Panel("Snapshots", "ops", ((rate("noetl_snapshots_total", "outcome"), "{{outcome}}"),)),
        Panel("What went wrong", "ops", (
            (rate("noetl_projector_projection_errors_total"), "cannot be projected"),
            (rate("noetl_fabric_undecodable_total"), "no events"),
            (rate("noetl_dead_letters_total", "kind"), "dead letters {{kind}}"),
        )),
    ),
    "Data stages": (
        Panel("Backlog of frames", "short", (
            ('sum by (stage_kind, status) (noetl_frame_backlog_total{stage_kind!="all",status!="all"})',
             "{{stage_kind}} {{status}}"),
        )),
        Panel("Backlog by tenant", "short", (
            ("topk(10, sum by (tenant_id, organization_id) (noetl_frame_backlog_detail_total))",
             "{{tenant_id}} / {{organization_id}}"),
        )),
        Panel("Frames", "ops", ((rate("noetl_frames_total", "outcome"), "{{outcome}}"),)),
        Panel("Time of a frame, p95", "s",
              ((quantile(0.95, "noetl_frame_seconds", "stage_kind"), "{{stage_kind}}"),)),
        Panel("Rows", "ops", ((rate("noetl_frame_rows_total", "outcome"), "{{outcome}}"),)),
    ),
    "Payloads": (
        Panel("Shared memory: hits", "percentunit", (
            (rate('noetl_payload_reads_total{tier="shared",outcome="hit"}') + " / "
             + rate('noetl_payload_reads_total{tier="shared"}'), "hit ratio"),
        )),
        Panel("Shared memory: refused", "ops",
              ((rate('noetl_payload_writes_total{tier="shared",outcome="refused"}'), "refused"),)),
        Panel("Tiers: how full", "percentunit",
              (("max by (tier) (noetl_payload_tier_bytes / noetl_payload_tier_budget_bytes)", "{{tier}}"),)),
        Panel("Reads", "ops", ((rate("noetl_payload_reads_total", "tier, outcome"), "{{tier}} {{outcome}}"),)),
        Panel("Bytes", "Bps", (
            (rate("noetl_payload_read_bytes_total", "tier"), "read {{tier}}"),
            (rate("noetl_payload_written_bytes_total", "tier"), "written {{tier}}"),
        )),
        Panel("Copies given up", "ops", (
            (rate("noetl_payload_evictions_total", "tier, reason"), "{{tier}} {{reason}}"),
            (rate("noetl_payload_sidecars_failed_total"), "descriptions failed"),
        )),
        Panel("Garbage and repair", "ops", (
            (rate("noetl_gc_objects_total", "outcome"), "collected: {{outcome}}"),
            (rate("noetl_repair_objects_total", "outcome"), "repaired: {{outcome}}"),
        )),
        Panel("Garbage: bytes deleted", "Bps", ((rate("noetl_gc_deleted_bytes_total"), "deleted"),)),
    ),
    "Archive": (
        Panel("Bundles", "ops", (
            (rate("noetl_archives_written_total"), "archived"),
            (rate("noetl_archive_failures_total"), "cannot be archived"),
        )),
        Panel("Bytes archived", "Bps", ((rate("noetl_archive_bytes_total"), "archived"),)),
        Panel("Events that have left the ledger", "ops", ((rate("noetl_retention_events_total"), "events"),)),
        Panel("Retention: bytes", "Bps", ((rate("noetl_retention_bytes_total"), "left the ledger"),)),
        Panel("Retention: executions", "ops", ((rate("noetl_retention_roots_total", "outcome"), "{{outcome}}"),)),
    ),
}  # fmt: skip


def panels() -> list[dict[str, Any]]:
    """Every row and what is in it, each at its place."""
    found: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        found.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                      "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}})  # fmt: skip
        for place, panel in enumerate(row):
            at = {"h": _HIGH, "w": _WIDE, "x": place % _PER_LINE * _WIDE, "y": top + 1 + place // _PER_LINE * _HIGH}
            found.append(picture(panel, at))
        top += 1 + (len(row) + _PER_LINE - 1) // _PER_LINE * _HIGH
    return [{"id": number, **panel} for number, panel in enumerate(found, start=1)]


def picture(panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    """A panel as Grafana has it."""
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """The whole file."""
    return {
        "uid": "noetl",
        "title": "NoETL",
        "tags": ["noetl"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source",
                 "current": {}, "hide": 0},
            ]
        },
        "panels": panels(),
    }  # fmt: skip


def main() -> int:
    """Write the file, or look whether it is up to date."""
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        if not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
            print("deploy/grafana/noetl.json is out of date: run python scripts/generate_dashboard.py", file=sys.stderr)
            return 1
        return 0
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
