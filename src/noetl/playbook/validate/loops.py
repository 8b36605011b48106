"""`loop`: what a step repeats over, how many at a time, and in which frames."""

from __future__ import annotations

from typing import Any

from noetl.playbook.bounds import COUNT, FANOUT_ROWS, FANOUT_SLOTS, FRAME, PARTITIONS, is_template
from noetl.playbook.document import Cursor, Frame, Loop
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.shapes import bounded, choice, columns, ignore_unknown, mapping, truth
from noetl.playbook.validate.stages import check_dataset
from noetl.playbook.validate.templates import check_strict
from noetl.playbook.words import ENGINES, FAILURES, LOOP_MODES, PLACEMENTS, is_readable

__all__ = ["read_loop"]

_SPEC_KEYS = ("mode", "max_in_flight", "policy", "frame", "engine", "partitions", "by")


def read_loop(report: Report, node: Node, step: str) -> Loop | None:
    """The loop of a step."""
    if not node.is_mapping:
        report.add("NTL-102", node, field="loop", shape="a mapping")
        return None
    ignore_unknown(report, node, "loop", ("in", "cursor", "iterator", "spec"))
    items, claims = node.get("in"), node.get("cursor")
    if (items is None) == (claims is None):
        report.add("NTL-302", node, step=step)
    if items is not None:
        check_strict(report, items, "loop.in")
    iterator = _read_iterator(report, node)
    spec = mapping(report, node.get("spec"), "loop.spec")
    ignore_unknown(report, spec, "loop.spec", _SPEC_KEYS)
    mode = choice(report, spec.get("mode"), "loop.spec.mode", LOOP_MODES, "NTL-303", default="sequential")
    if (mode == "cursor") != (claims is not None):
        report.add("NTL-304", spec.key("mode") if mode == "cursor" else node.key("cursor"))
    cursor = _read_cursor(report, claims) if claims is not None else None
    if mode == "fanout" and items is not None:
        check_dataset(report, items)
    if claims is not None:
        mode = "cursor"  # what else is asked of a cursor loop is asked of one whose mode is wrong, too
    placement, failure = _read_policy(report, spec)
    limit = spec.get("max_in_flight")
    if mode == "parallel" and limit is None:
        report.add("NTL-953", spec)
    unsaid = FANOUT_SLOTS if mode == "fanout" else 1
    return Loop(
        iterator=iterator,
        mode=mode,
        items=items.data() if items is not None else None,
        cursor=cursor,
        max_in_flight=bounded(report, limit, "loop.spec.max_in_flight", COUNT, "NTL-305", default=unsaid),
        placement=placement,
        failure=failure or ("best_effort" if mode == "cursor" else "fail_at_end"),
        frame=_read_frame(report, spec, mode),
        **_read_split(report, spec, mode, step),
    )


def _read_iterator(report: Report, node: Node) -> str:
    name = node.get("iterator")
    if name is None or name.value in (None, ""):
        report.add("NTL-301", node if name is None else name, what="loop", field="iterator", sample="item")
        return "item"
    if not isinstance(name.value, str) or not is_readable(name.value):
        report.add("NTL-310", name, name=name.data())
        return "item"
    return name.value


def _read_policy(report: Report, spec: Node) -> tuple[Any, Any]:
    """Placement and failure mode, None where nothing is said."""
    policy = mapping(report, spec.get("policy"), "loop.spec.policy")
    ignore_unknown(report, policy, "loop.spec.policy", ("exec", "failure", "results"))
    placement = choice(report, policy.get("exec"), "loop.spec.policy.exec", PLACEMENTS, "NTL-306")
    failure = mapping(report, policy.get("failure"), "loop.spec.policy.failure")
    ignore_unknown(report, failure, "loop.spec.policy.failure", ("mode",))
    mode = choice(report, failure.get("mode"), "loop.spec.policy.failure.mode", FAILURES, "NTL-306")
    results = mapping(report, policy.get("results"), "loop.spec.policy.results")
    truth(report, results.get("preserve_order"), "loop.spec.policy.results.preserve_order")
    return placement, mode


def _read_cursor(report: Report, node: Node) -> Cursor:
    block = mapping(report, node, "loop.cursor")
    ignore_unknown(report, block, "loop.cursor", ("kind", "auth", "claim", "options"))
    kind, auth, claim = block.get("kind"), block.get("auth"), block.get("claim")
    if kind is None or kind.value != "postgres":
        report.add("NTL-309", block if kind is None else kind, field="kind")
    if auth is None or not (auth.is_mapping or isinstance(auth.value, str)) or not auth.value:
        report.add("NTL-309", block if auth is None else auth, field="auth")
    else:
        check_strict(report, auth, "loop.cursor.auth")
    if claim is None or not isinstance(claim.value, str) or not claim.value.strip():
        report.add("NTL-309", block if claim is None else claim, field="claim")
    else:
        check_strict(report, claim, "loop.cursor.claim")
    options = mapping(report, block.get("options"), "loop.cursor.options")
    return Cursor(
        auth=auth.data() if auth is not None else None,
        claim=str(claim.value) if claim is not None else "",
        max_iterations=bounded(
            report, options.get("max_iterations"), "loop.cursor.options.max_iterations", COUNT, "NTL-308"
        ),
        options={key: value.data() for key, value in options.entries.items() if key != "max_iterations"},
    )


def _read_frame(report: Report, spec: Node, mode: str) -> Frame:
    rows: dict[str, Any] = {"max_rows": FANOUT_ROWS} if mode == "fanout" else {}
    node = spec.get("frame")
    if node is None:
        return Frame(**rows)
    if mode not in ("cursor", "fanout"):
        report.add("NTL-307", spec.key("frame"))
        return Frame()
    block = mapping(report, node, "loop.spec.frame")
    ignore_unknown(report, block, "loop.spec.frame", tuple(FRAME))
    said = {
        name: bounded(report, block.get(name), f"frame.{name}", bound, "NTL-308")
        for name, bound in FRAME.items()
        if name in block.entries
    }
    frame = Frame(**{**rows, **{name: value for name, value in said.items() if value is not None}})
    lease, beat = frame.lease_seconds, frame.heartbeat_seconds
    if not is_template(lease) and not is_template(beat) and float(beat) >= float(lease):
        at = block.get("heartbeat_seconds") or block.get("lease_seconds") or block
        report.add("NTL-308", at, field="frame.heartbeat_seconds", value=f"{float(beat):g}",
                   bound=f"below lease_seconds, {float(lease):g}", sample=f"{float(lease) / 4:g}")  # fmt: skip
    return frame


def _read_split(report: Report, spec: Node, mode: str, step: str) -> dict[str, Any]:
    """`engine`, `partitions` and `by`."""
    engine = choice(report, spec.get("engine"), "loop.spec.engine", ENGINES, "NTL-804", default="auto")
    if engine == "spark" and mode in ("sequential", "parallel"):
        report.add("NTL-806", spec.key("engine"), engine=engine, mode=mode)
    if mode != "fanout":
        for key in ("partitions", "by"):
            if key in spec.entries:
                report.add("NTL-801", spec.key(key), field=key)
        return {"engine": engine}
    if "partitions" in spec.entries and "by" in spec.entries:
        report.add("NTL-802", spec.key("by"), step=step)
    return {
        "engine": engine,
        "partitions": bounded(report, spec.get("partitions"), "loop.spec.partitions", PARTITIONS, "NTL-803"),
        "by": columns(report, spec.get("by"), "loop.spec.by"),
    }
