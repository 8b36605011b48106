"""`output` of a step or task: where its result is kept."""

from __future__ import annotations

from typing import Any

from noetl.playbook.bounds import COUNT, SIZE
from noetl.playbook.document import Output, Select
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.shapes import bounded, ignore_unknown, mapping, optional_text, truth
from noetl.playbook.words import OUTPUT_KEYS, SCOPES, STORES

__all__ = ["read_output"]


def read_output(
    report: Report, node: Node | None, short: Node | None = None, *, fields: tuple[str, ...] | None = ()
) -> Output:
    """The storage of a result. `short` is the task key `output_select`; `fields` are what the kind of tool adds.

    None for `fields` takes every other key as the tool's own.
    """
    block = mapping(report, node, "output")
    if fields is not None:
        ignore_unknown(report, block, "output", (*OUTPUT_KEYS, *fields))
    limit = bounded(report, block.get("inline_max_bytes"), "output.inline_max_bytes", SIZE, "NTL-212")
    select = _read_select(report, block.get("output_select"), "output.output_select")
    if select is None:
        select = _read_select(report, block.get("select"), "output.select")
    if short is not None and short.is_mapping:
        limit = _read_threshold(report, short) if limit is None else limit
    elif select is None:
        select = _read_select(report, short, "output_select")
    accumulate = block.get("accumulate")
    return Output(
        store=_read_store(report, block),
        inline_max_bytes=limit,
        select=select,
        scope=_read_scope(report, block.get("scope")),
        name=optional_text(report, block.get("as"), "output.as"),
        accumulate=None if accumulate is None else truth(report, accumulate, "output.accumulate"),
        fields={key: value.data() for key, value in block.entries.items() if key not in OUTPUT_KEYS},
    )


def _read_store(report: Report, block: Node) -> str | None:
    node = block.get("store")
    if node is None:
        return None
    store = node if isinstance(node.value, str) else mapping(report, node, "output.store").get("kind")
    if store is None:
        return None
    if store.value == "object":
        report.add("NTL-932", store)
        return "disk"
    if store.value not in STORES:
        report.add("NTL-102", store, field="output.store.kind", shape=f"one of {', '.join(STORES)}")
        return None
    return str(store.value)


def _read_scope(report: Report, node: Node | None) -> Any:
    if node is None:
        return None
    if node.value not in SCOPES:
        report.add("NTL-102", node, field="output.scope", shape=f"one of {', '.join(SCOPES)}")
        return None
    return node.value


def _read_select(report: Report, node: Node | None, field: str) -> tuple[Select, ...] | None:
    if node is None or node.value is None:
        return None
    items = [node] if isinstance(node.value, str) else node.items
    if not items and not node.is_list:
        report.add("NTL-102", node, field=field, shape="a list of paths")
        return None
    chosen = []
    for index, item in enumerate(items):
        path = item.get("path") if item.is_mapping else item
        if path is None or not isinstance(path.value, str):
            report.add("NTL-102", item, field=f"{field}[{index}]", shape="a path or a mapping with path")
            continue
        chosen.append(Select(path=path.value, name=optional_text(report, item.get("as"), f"{field}[{index}].as")))
    return tuple(chosen)


def _read_threshold(report: Report, short: Node) -> Any:
    """`output_select: {strategy: size_threshold, threshold_kb: n}`."""
    ignore_unknown(report, short, "output_select", ("strategy", "threshold_kb"))
    if (strategy := short.get("strategy")) is not None and strategy.value != "size_threshold":
        report.add("NTL-102", strategy, field="output_select.strategy", shape="size_threshold")
    size = bounded(report, short.get("threshold_kb"), "output_select.threshold_kb", COUNT, "NTL-212", open_=False)
    return None if size is None else size * 1024
