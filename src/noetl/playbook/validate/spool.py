"""`spool` of a subscription: where messages wait while what they need is down."""

from __future__ import annotations

from noetl.playbook.bounds import COUNT, SIZE, Bound, OutOfBounds
from noetl.playbook.problems import Report
from noetl.playbook.source import Node

__all__ = ["BACKENDS", "ON_FULL", "ON_RECOVERY", "ORDERINGS", "SPOOL_MODES", "check_spool"]

SPOOL_MODES = ("off", "buffer_and_ack", "hybrid")
BACKENDS = ("s3", "gcs", "nats_object", "local_disk")
ORDERINGS = ("global", "per_key", "none")
ON_FULL = ("stop_acking", "drop_to_dlq", "alert_only")
ON_RECOVERY = ("ordered_then_live", "interleave")

_BUCKETS = ("s3", "gcs", "nats_object")


def check_spool(report: Report, node: Node | None) -> None:
    """Everything that can be wrong with a spool."""
    if node is None or node.value is None:
        return
    if not node.is_mapping:
        report.add("NTL-102", node, field="spool", shape="a mapping")
        return
    mode = _choice(report, node, "mode", SPOOL_MODES) or "off"
    backend = _choice(report, node, "backend", BACKENDS)
    if mode != "off" and "backend" not in node.entries:
        report.add("NTL-705", node, field="backend", detail=f"mode {mode} needs one of {', '.join(BACKENDS)}")
    if mode != "off" and backend in _BUCKETS and "bucket" not in node.entries:
        report.add("NTL-705", node, field="bucket", detail=f"backend {backend} needs a bucket")
    ordering = _choice(report, node, "ordering", ORDERINGS)
    if ordering == "per_key" and "ordering_key" not in node.entries:
        report.add("NTL-705", node, field="ordering_key", detail="ordering per_key needs it")
    _check_circuit(report, node)
    _check_retention(report, node)
    drain = _part(report, node, "drain")
    if _choice(report, drain, "on_recovery", ON_RECOVERY, "drain.") == "interleave" and ordering == "global":
        at = drain.entries["on_recovery"]
        report.add("NTL-705", at, field="drain.on_recovery", detail="interleave cannot keep the ordering global")
    _number(report, drain, "max_replay_attempts", COUNT, "drain.")


def _check_circuit(report: Report, node: Node) -> None:
    circuit = _part(report, node, "circuit")
    for field in ("trip_after", "probe_after_ms", "probe_interval_ms"):
        _number(report, circuit, field, COUNT, "circuit.")
    downstream = circuit.get("downstream")
    if downstream is None:
        return
    if not downstream.is_list or not all(item.is_mapping for item in downstream.items):
        report.add("NTL-705", downstream, field="circuit.downstream", detail="must be a list of {name, type, target}")
        return
    for item in downstream.items:
        missing = [field for field in ("name", "type", "target") if field not in item.entries]
        if missing:
            report.add("NTL-705", item, field="circuit.downstream", detail=f"needs {', '.join(missing)}")


def _check_retention(report: Report, node: Node) -> None:
    retention = _part(report, node, "retention")
    _number(report, retention, "max_age_hours", COUNT, "retention.")
    _number(report, retention, "max_bytes", SIZE, "retention.")
    _choice(report, retention, "on_full", ON_FULL, "retention.")


def _part(report: Report, node: Node, key: str) -> Node:
    part = node.get(key)
    if part is None or part.value is None:
        return Node({}, node.line, node.column)
    if not part.is_mapping:
        report.add("NTL-705", part, field=key, detail="must be a mapping")
        return Node({}, part.line, part.column)
    return part


def _choice(report: Report, node: Node, key: str, allowed: tuple[str, ...], prefix: str = "") -> str | None:
    value = node.get(key)
    if value is None:
        return None
    if value.value not in allowed:
        shown = "" if value.value is None else value.data()
        detail = f"'{shown}' is not one of {', '.join(allowed)}"
        report.add("NTL-705", value, field=prefix + key, detail=detail)
        return None
    return str(value.value)


def _number(report: Report, node: Node, key: str, bound: Bound, prefix: str) -> None:
    value = node.get(key)
    if value is None or value.value is None:
        return
    try:
        bound.read(value.data())
    except OutOfBounds:
        report.add("NTL-705", value, field=prefix + key, detail=f"'{value.data()}' must be {bound.text}")
