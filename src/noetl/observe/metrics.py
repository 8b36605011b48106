"""The instruments of NoETL, and the verbs that use them.

Code that measures says `count`, `observe` or `shift` with the name of an instrument below. In a process without a
recorder, such as `noetl run`, that is one comparison; the server installs a recorder and gets the numbers.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

__all__ = ["INSTRUMENTS", "Instrument", "Recorder", "count", "install", "is_installed", "observe", "shift", "uninstall"]

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Instrument(NamedTuple):
    """One metric: what it is, and the few labels it has."""

    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


INSTRUMENTS: dict[str, Instrument] = {
    "noetl_build_info": Instrument("gauge", "1 for the release that this process is of.", ("version",)),
    "noetl_http_requests_total": Instrument(
        "counter", "Requests answered, by method, route and status.", ("method", "route", "status")
    ),
    "noetl_http_request_seconds": Instrument(
        "histogram", "Time from a request to the start of its answer.", ("method", "route"), _FAST
    ),
    "noetl_executions_started_total": Instrument("counter", "Executions started here."),
    "noetl_executions_ended_total": Instrument("counter", "Executions that ended here, by status.", ("status",)),
    "noetl_commands_total": Instrument(
        "counter", "Commands that workers here have ended, by tool kind and outcome.", ("kind", "outcome")
    ),
    "noetl_command_wait_seconds": Instrument(
        "histogram", "Time from a command being issued to a worker having it, by tool kind.", ("kind",), _LONG
    ),
    "noetl_command_run_seconds": Instrument(
        "histogram", "Time from a worker having a command to its report being taken, by tool kind.", ("kind",), _LONG
    ),
    "noetl_archives_written_total": Instrument("counter", "Bundles that were archived here."),
    "noetl_archive_bytes_total": Instrument("counter", "What these bundles come to, in bytes."),
    "noetl_archive_failures_total": Instrument("counter", "Executions that ended here and cannot be archived."),
    "noetl_leases_lapsed_total": Instrument(
        "counter", "Commands whose worker was not heard of, and that were delivered again."
    ),
    "noetl_driver_conflicts_total": Instrument(
        "counter", "Decisions that were made again because somebody else had moved the execution."
    ),
    "noetl_frame_backlog_total": Instrument(
        "gauge",
        "Frames of open stages kept here, by kind of stage and by whether they wait or run; `all` is the sum.",
        ("stage_kind", "status"),
    ),
    "noetl_frame_backlog_detail_total": Instrument(
        "gauge",
        "The same by tenant and organisation, for those with most of them; the rest are `other`.",
        ("tenant_id", "organization_id", "stage_kind", "status"),
    ),
    "noetl_frames_total": Instrument(
        "counter", "Frames of stages kept here, by what has happened to them.", ("outcome",)
    ),
    "noetl_frame_seconds": Instrument(
        "histogram", "Time from a slot getting a frame to its end, by kind of stage.", ("stage_kind",), _LONG
    ),
    "noetl_frame_rows_total": Instrument("counter", "Rows of committed frames, by outcome.", ("outcome",)),
    "noetl_effect_barrier_total": Instrument(
        "counter", "Tasks and frames that came to the effect barrier, by what became of their outcome.", ("outcome",)
    ),
    "noetl_append_seconds": Instrument("histogram", "Time until an append to the ledger is durable.", (), _FAST),
    "noetl_append_events": Instrument("histogram", "Events of one append.", (), _SIZES),
    "noetl_projection_lag_events": Instrument("gauge", "Events in the log that were not projected yet when asked."),
    "noetl_outbox_published_total": Instrument("counter", "Events that the fabric has taken from here."),
    "noetl_outbox_failed_total": Instrument("counter", "Events that it has not taken, and that are tried again."),
    "noetl_outbox_requeued_total": Instrument("counter", "Commands that the queue had lost and that are in it again."),
    "noetl_outbox_refilled_total": Instrument("counter", "Events that it had lost and that were published again."),
    "noetl_outbox_publish_seconds": Instrument("histogram", "Time until a batch of events is handed over.", (), _FAST),
    "noetl_outbox_pending": Instrument("gauge", "Events not yet published when asked."),
    "noetl_outbox_oldest_seconds": Instrument(
        "gauge", "Age of the oldest event that is not yet published, when asked."
    ),
    "noetl_wal_void_total": Instrument(
        "counter", "Messages of the log on JetStream that do not count, because another one was faster."
    ),
    "noetl_materializer_events_total": Instrument("counter", "Events that were copied from the log into the table."),
    "noetl_materializer_batch_seconds": Instrument("histogram", "Time to copy a batch of events.", (), _FAST),
    "noetl_materializer_lag_events": Instrument("gauge", "Events of the log that the table has not, when asked."),
    "noetl_materializer_lag_seconds": Instrument("gauge", "How old the event was that was copied last, when it was."),
    "noetl_materializer_position": Instrument("gauge", "How far the table has come, when asked."),
    "noetl_projector_deliveries_total": Instrument(
        "counter", "Deliveries that a projector has settled: ack, nak or term.", ("outcome",)
    ),
    "noetl_projector_redeliveries_total": Instrument(
        "counter", "Deliveries that a projector has got before and not settled."
    ),
    "noetl_projector_projection_errors_total": Instrument(
        "counter", "Executions and other roots that a projector could not bring up to date, each time it tried."
    ),
    "noetl_projector_batch_seconds": Instrument("histogram", "Time to project and settle a batch.", (), _FAST),
    "noetl_projector_rows_total": Instrument(
        "counter", "Rows that a projector has saved, and those that were there in a later version.", ("outcome",)
    ),
    "noetl_snapshots_total": Instrument(
        "counter", "Snapshots: taken, verified by a replay, found to differ from one (mismatch), failed.", ("outcome",)
    ),
    "noetl_projector_lag_events": Instrument("gauge", "Events that wait for a projector when asked.", ("share",)),
    "noetl_projector_unsettled_events": Instrument(
        "gauge", "Events that a projector was given and has not settled when asked.", ("share",)
    ),
    "noetl_projector_lag_seconds": Instrument(
        "gauge", "Age of the last event that a projector has projected, when it did.", ("share",)
    ),
    "noetl_projector_checkpoint": Instrument(
        "gauge", "Position up to which everything of a share is in the rows.", ("share",)
    ),
    "noetl_projector_position": Instrument("gauge", "Last position that a projector was told of.", ("share",)),
    "noetl_dead_letters_total": Instrument(
        "counter", "Messages given up and kept with their reason, by kind of stream.", ("kind",)
    ),
    "noetl_fabric_undecodable_total": Instrument("counter", "Messages of the fabric that are no events."),
    "noetl_queue_depth": Instrument("gauge", "Commands that wait for a worker slot."),
    "noetl_queue_commands": Instrument(
        "gauge", "Commands of a pool in the queue when asked: waiting, or leased to a worker.", ("pool", "state")
    ),
    "noetl_worker_slots_busy": Instrument("gauge", "Worker slots at work."),
    "noetl_auth_refused_total": Instrument("counter", "Requests refused before they reached a route.", ("reason",)),
    "noetl_quota_refused_total": Instrument(
        "counter", "Requests refused because a tenant has reached a limit, by limit.", ("limit",)
    ),
    "noetl_payload_reads_total": Instrument(
        "counter", "Payloads asked of a tier; any outcome but hit falls through to the next.", ("tier", "outcome")
    ),
    "noetl_payload_read_bytes_total": Instrument("counter", "Bytes of payloads that a tier has given.", ("tier",)),
    "noetl_payload_writes_total": Instrument(
        "counter", "Payloads offered to a tier, by whether it took them.", ("tier", "outcome")
    ),
    "noetl_payload_written_bytes_total": Instrument("counter", "Bytes of payloads that a tier has taken.", ("tier",)),
    "noetl_payload_evictions_total": Instrument(
        "counter", "Copies of payloads that a tier has given up, and why.", ("tier", "reason")
    ),
    "noetl_payload_tier_bytes": Instrument("gauge", "What a tier of payloads held when asked.", ("tier",)),
    "noetl_payload_tier_budget_bytes": Instrument("gauge", "What a tier of payloads may hold.", ("tier",)),
    "noetl_payload_sidecars_failed_total": Instrument(
        "counter", "Descriptions beside payloads that could not be written or removed."
    ),
    "noetl_gc_objects_total": Instrument(
        "counter", "Objects that collections of garbage have found dead, deleted or spared.", ("kind", "outcome")
    ),
    "noetl_gc_deleted_bytes_total": Instrument("counter", "Bytes that collections of garbage have deleted."),
    "noetl_retention_events_total": Instrument("counter", "Archived events that have left the ledger."),
    "noetl_retention_bytes_total": Instrument("counter", "Bytes of archived events that have left the ledger."),
    "noetl_retention_roots_total": Instrument(
        "counter", "Executions looked at for whether they may leave the ledger: gone, or why they stay.", ("outcome",)
    ),
    "noetl_leader": Instrument(
        "gauge", "Whether this process does what one process does for all: 1, else 0.", ("what",)
    ),
    "noetl_leader_changes_total": Instrument("counter", "Times that this process has become leader.", ("what",)),
    "noetl_schedule_times_total": Instrument(
        "counter", "Times of schedules that have come: fired, or late, overlap or refused.", ("outcome",)
    ),
    "noetl_schedule_delay_seconds": Instrument(
        "histogram", "Time from when a run was due to when it was begun.", (), (*_FAST, 30.0, 60.0, 300.0, 3600.0)
    ),
    "noetl_repair_objects_total": Instrument(
        "counter", "Objects that repairs have looked at, by what came of it.", ("outcome",)
    ),
}


class Recorder(Protocol):
    """Where numbers go. Labels come in the order of the instrument's."""

    def count(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, labels: tuple[str, ...]) -> None:
        """Add one value to a histogram."""
        ...

    def shift(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        """Move a gauge up or down."""
        ...


class _Installed:
    recorder: Recorder | None = None


def install(recorder: Recorder) -> None:
    """Send the numbers of this process there from now on."""
    _Installed.recorder = recorder


def uninstall() -> None:
    """Send them nowhere again."""
    _Installed.recorder = None


def is_installed() -> bool:
    """Whether anybody listens; for code whose measuring alone would cost."""
    return _Installed.recorder is not None


def count(name: str, *labels: str, amount: float = 1) -> None:
    """Add to a counter."""
    if (recorder := _Installed.recorder) is not None:
        recorder.count(name, amount, labels)


def observe(name: str, value: float, *labels: str) -> None:
    """Add one value to a histogram."""
    if (recorder := _Installed.recorder) is not None:
        recorder.observe(name, value, labels)


def shift(name: str, amount: float, *labels: str) -> None:
    """Move a gauge up or down. Several parts of a process may share one, so nobody sets it."""
    if (recorder := _Installed.recorder) is not None:
        recorder.shift(name, amount, labels)
