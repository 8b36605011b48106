"""The document itself: head, metadata, executor, workload, and the order in which the rest is read."""

from __future__ import annotations

import re
from typing import Any

from noetl.playbook.bounds import DURATION, SIZE
from noetl.playbook.document import Executor, Metadata, Playbook, Positions
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.keychain import read_keychain, read_workbook
from noetl.playbook.validate.placement import read_labels, read_placement
from noetl.playbook.validate.shapes import (
    Context,
    bounded,
    choice,
    ignore_unknown,
    mapping,
    optional_text,
    texts,
    truth,
    words,
)
from noetl.playbook.validate.steps import note_unreachable, read_steps
from noetl.playbook.validate.templates import check_loose
from noetl.playbook.words import API_VERSIONS, BANNED, DOCUMENT_KINDS, PROFILES, ROOT_KEYS

__all__ = ["kind_of", "read_api_version", "read_metadata", "read_playbook"]

_NOT_IN_PATH = re.compile(r"[^A-Za-z0-9_\-./]")
_METADATA = ("name", "path", "version", "description", "labels", "tags", "exposed_in_ui", "exposes_as_mcp", "agent",
             "capabilities")  # fmt: skip


def kind_of(report: Report, root: Node) -> str:
    """What the document is. One that does not say is read as what it looks like, for the sake of its other problems."""
    kind = root.get("kind")
    if kind is not None and kind.value in DOCUMENT_KINDS:
        return str(kind.value)
    value = "" if kind is None or kind.value is None else kind.data()
    report.add("NTL-104", root if kind is None else kind, field="kind", value=value, allowed=DOCUMENT_KINDS)
    spec = root.get("spec")
    looks_subscribed = "workflow" not in root.entries and spec is not None and "source" in spec.entries
    return "Subscription" if looks_subscribed else "Playbook"


def read_api_version(report: Report, root: Node, kind: str) -> str:
    """The version of the language."""
    node, expected = root.get("apiVersion"), API_VERSIONS[kind]
    if node is not None and node.value == "noetl.io/v10" and kind == "Playbook":
        report.add("NTL-903", node)
    elif node is None or node.value != expected:
        value = "" if node is None or node.value is None else node.data()
        at = root if node is None else node
        report.add("NTL-103", at, field="apiVersion", value=value, allowed=expected)
    return expected


def read_metadata(report: Report, root: Node) -> Metadata:
    """Who the document is."""
    node = root.get("metadata")
    if node is not None and not node.is_mapping:
        report.add("NTL-102", node, field="metadata", shape="a mapping with name")
        return Metadata(name="", path="")
    block = node if node is not None else Node({}, root.line, root.column)
    name = block.get("name")
    if name is None or name.value in (None, ""):
        at = block if name is None else name
        report.add("NTL-105", at, what="metadata", field="name", sample="my_playbook")
    title = words(report, name, "metadata.name")
    return Metadata(
        name=title,
        path=_read_path(report, block, title),
        version=data.data() if (data := block.get("version")) is not None else None,
        description=words(report, block.get("description"), "metadata.description"),
        labels=mapping(report, block.get("labels"), "metadata.labels").data(),
        tags=texts(report, block.get("tags"), "metadata.tags"),
        exposed_in_ui=truth(report, block.get("exposed_in_ui"), "metadata.exposed_in_ui"),
        exposes_as_mcp=truth(report, block.get("exposes_as_mcp"), "metadata.exposes_as_mcp"),
        agent=truth(report, block.get("agent"), "metadata.agent"),
        capabilities=texts(report, block.get("capabilities"), "metadata.capabilities"),
        extra={key: value.data() for key, value in block.entries.items() if key not in _METADATA},
    )


def _read_path(report: Report, block: Node, name: str) -> str:
    node = block.get("path")
    at = node if node is not None else block.get("name")
    text = optional_text(report, node, "metadata.path") if node is not None else name
    if not text or at is None:
        return name
    path = text.strip("/")
    if not path:
        report.add("NTL-102", at, field="metadata.path", shape="text")
        return name
    if path != text:
        report.add("NTL-905", at, path=path)
    parts = path.split("/")
    found = _NOT_IN_PATH.search(path)
    bad = found[0] if found else "//" if "" in parts else ".." if ".." in parts or "." in parts else None
    if bad is not None:
        report.add("NTL-106", at, value=path, char=bad)
    return path


def read_playbook(context: Context, root: Node) -> Playbook:
    """The playbook of a root mapping."""
    report = context.report
    api_version = read_api_version(report, root, "Playbook")
    metadata = read_metadata(report, root)
    spec, extra = _read_other_keys(report, root)
    workload = mapping(report, root.get("workload"), "workload")
    check_loose(report, workload, "workload")
    keychain = read_keychain(report, root.get("keychain"))
    workbook = read_workbook(context, root.get("workbook"))
    steps = read_steps(context, root)
    executor = _read_executor(context, mapping(report, root.get("executor"), "executor"))
    entry = executor.entry_step or ("start" if "start" in steps else next(iter(steps), ""))
    if steps:
        note_unreachable(context, steps, entry, executor.final_step)
    return Playbook(
        path=metadata.path,
        name=metadata.name,
        api_version=api_version,
        metadata=metadata,
        executor=executor,
        keychain=keychain,
        workload=workload.data(),
        workbook=workbook,
        steps=steps,
        entry=entry,
        final_step=executor.final_step,
        no_next_is_error=executor.no_next_is_error,
        spec=spec,
        extra=extra,
        positions=Positions(),
    )


def _read_other_keys(report: Report, root: Node) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The older root `spec`, and the keys nobody knows."""
    spec: dict[str, Any] | None = None
    extra: dict[str, Any] = {}
    for key, value in root.entries.items():
        if key in ROOT_KEYS:
            continue
        if key == "vars":
            report.add("NTL-108", root.key(key), what="root", key=key, instead=BANNED[key])
        elif key == "spec" and value.is_mapping:
            report.add("NTL-902", root.key(key))
            spec = value.data()
        else:
            report.add("NTL-901", root.key(key), key=key)
            extra[key] = value.data()
    return spec, extra


def _read_executor(context: Context, node: Node) -> Executor:
    report = context.report
    ignore_unknown(report, node, "executor", ("profile", "version", "requires", "spec"))
    requires = mapping(report, node.get("requires"), "executor.requires")
    ignore_unknown(report, requires, "executor.requires", ("tools", "features", "labels"))
    spec = mapping(report, node.get("spec"), "executor.spec")
    known = ("entry_step", "final_step", "no_next_is_error", "policy", "placement", "spark")
    ignore_unknown(report, spec, "executor.spec", known)
    return Executor(
        profile=choice(report, node.get("profile"), "executor.profile", PROFILES, "NTL-110", default="auto"),
        version=words(report, node.get("version"), "executor.version") or None,
        requires_tools=texts(report, requires.get("tools"), "executor.requires.tools"),
        requires_features=texts(report, requires.get("features"), "executor.requires.features"),
        requires_labels=read_labels(report, requires.get("labels"), "executor.requires.labels"),
        placement=read_placement(report, spec.get("placement"), "executor.spec.placement"),
        entry_step=_read_step_name(context, spec, "entry_step"),
        final_step=_read_step_name(context, spec, "final_step"),
        no_next_is_error=truth(report, spec.get("no_next_is_error"), "executor.spec.no_next_is_error"),
        spark=mapping(report, spec.get("spark"), "executor.spec.spark").data(),
        **_read_limits(report, spec),
    )


def _read_step_name(context: Context, spec: Node, key: str) -> str | None:
    node = spec.get(key)
    name = optional_text(context.report, node, f"executor.spec.{key}")
    if node is None or name is None:
        return None
    if name not in context.steps:
        context.report.unknown("NTL-111", node, name, context.steps, what="executor step")
        return None
    return name


def _read_limits(report: Report, spec: Node) -> dict[str, Any]:
    policy = mapping(report, spec.get("policy"), "executor.spec.policy")
    ignore_unknown(report, policy, "executor.spec.policy", ("defaults", "results", "limits"))
    defaults = mapping(report, policy.get("defaults"), "executor.spec.policy.defaults")
    results = mapping(report, policy.get("results"), "executor.spec.policy.results")
    limits = mapping(report, policy.get("limits"), "executor.spec.policy.limits")
    return {
        "default_timeout": bounded(report, defaults.get("timeout_s"), "timeout_s", DURATION, "NTL-212", open_=False),
        "reference_first": truth(report, results.get("reference_first"), "results.reference_first"),
        "max_payload_bytes": bounded(
            report, limits.get("max_payload_bytes"), "max_payload_bytes", SIZE, "NTL-212", open_=False
        ),
    }
