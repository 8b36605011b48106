"""Data stages: `reduce`, and the fields of spark and transfer tasks."""

from __future__ import annotations

from noetl.playbook.bounds import CHUNK, PARTITIONS
from noetl.playbook.document import Reduce, Step
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.shapes import Context, bounded, choice, columns, ignore_unknown, mapping
from noetl.playbook.words import SOURCES

__all__ = ["check_dataset", "check_reduce_source", "check_spark", "check_transfer", "read_reduce"]

ON_FAIL = ("warn", "drop", "fail")
WRITE_MODES = ("overwrite", "append", "upsert", "error", "ignore")
SOURCE_TYPES = ("http", "postgres", "snowflake", "duckdb", "files", "result")
TARGET_TYPES = ("postgres", "snowflake", "duckdb", "files")
TRANSFER_MODES = ("append", "replace", "upsert")

_QUERY = ("query", "table")
_SOURCE_NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "http": (("url",),),
    "postgres": (("auth",), _QUERY),
    "snowflake": (("auth",), _QUERY),
    "duckdb": (_QUERY,),
    "files": (("path", "csv", "json", "parquet", "arrow", "orc", "text", "resource"),),
    "result": (("rows", "ref"),),
}
_TARGET_NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "postgres": (("auth",), ("table",)),
    "snowflake": (("auth",), ("table",)),
    "files": (("path",),),
}


def read_reduce(context: Context, node: Node, step: Node) -> Reduce | None:
    """`reduce: {from, by}` of a step."""
    report, name = context.report, step.get("step")
    if not node.is_mapping:
        report.add("NTL-102", node, field="reduce", shape="a mapping")
        return None
    ignore_unknown(report, node, "reduce", ("from", "by"))
    if "loop" in step.entries:
        report.add("NTL-813", step.key("reduce"), step=name.data() if name is not None else "")
    by = columns(report, node.get("by"), "reduce.by")
    source = node.get("from")
    if source is None or source.value in (None, ""):
        sample = next(iter(context.steps), "score")
        report.add("NTL-810", node if source is None else source, what="reduce", field="from", sample=sample)
        return None
    if str(source.data()) not in context.steps:
        report.unknown("NTL-811", source, str(source.data()), context.steps, what="step")
    return Reduce(source=str(source.data()), by=by)


def check_reduce_source(context: Context, step: Step, steps: dict[str, Step]) -> None:
    """A reduce reads the outputs of frames, so the step it reads must have some."""
    if step.reduce is None or (source := steps.get(step.reduce.source)) is None:
        return
    framed = source.loop is not None and source.loop.mode in ("cursor", "fanout")
    if not framed and source.reduce is None and source.tasks[0].kind not in ("spark", "transfer"):
        block = context.steps[step.name].get("reduce")
        at = block.get("from") if block is not None else None
        if at is not None:
            context.report.add("NTL-812", at, step=source.name)


def check_dataset(report: Report, node: Node) -> None:
    """What a fan-out runs over, as far as it is written out."""
    if node.is_mapping:
        if sum(key in node.entries for key in SOURCES) != 1:
            report.add("NTL-822", node, name="in", allowed=SOURCES)
    elif not node.is_list and (not isinstance(node.value, str) or not node.value.strip()):
        shape = "a list, a template, an address or a mapping of a source"
        report.add("NTL-821", node, field="loop.in", shape=shape)


# --- spark ------------------------------------------------------------------------------------------------


def check_spark(report: Report, task: Node, name: str) -> None:
    """The fields of a spark task."""
    if "sql" in task.entries and "code" in task.entries:
        report.add("NTL-820", task.key("code"), task=name)
    _check_inputs(report, task.get("inputs"))
    _check_expectations(report, task.get("expect"))
    output = mapping(report, task.get("output"), "output")
    choice(report, output.get("mode"), "output.mode", WRITE_MODES, "NTL-827")
    if (parts := output.get("partition_by")) is not None and parts.value != []:
        columns(report, parts, "output.partition_by")
    bounded(report, task.get("partitions"), "tool.partitions", PARTITIONS, "NTL-803")
    columns(report, task.get("by"), "tool.by")


def _check_inputs(report: Report, node: Node | None) -> None:
    if node is None or node.value is None:
        return
    if not node.is_mapping:
        report.add("NTL-821", node, field="inputs", shape="a mapping of names to sources")
        return
    for name, source in node.entries.items():
        if not name.isidentifier():
            report.add("NTL-823", node.key(name), name=name)
        if source.is_mapping:
            if sum(key in source.entries for key in SOURCES) != 1:
                report.add("NTL-822", source, name=name, allowed=SOURCES)
        elif not isinstance(source.value, str) or not source.value:
            report.add("NTL-821", source, field=f"inputs.{name}", shape="a mapping, a template or a noetl:// name")


def _check_expectations(report: Report, node: Node | None) -> None:
    if node is None or node.value is None:
        return
    if not node.is_list:
        report.add("NTL-821", node, field="expect", shape="a list of checks")
        return
    seen: set[str] = set()
    for index, item in enumerate(node.items):
        if not item.is_mapping:
            report.add("NTL-821", item, field=f"expect[{index}]", shape="a mapping with name and check")
            continue
        ignore_unknown(report, item, "expect", ("name", "check", "on_fail"))
        for field, sample in (("name", "positive"), ("check", '"total >= 0"')):
            value = item.get(field)
            if value is None or not isinstance(value.value, str) or not value.value.strip():
                at = item if value is None else value
                report.add("NTL-824", at, what=f"expect[{index}]", field=field, sample=sample)
        choice(report, item.get("on_fail"), f"expect[{index}].on_fail", ON_FAIL, "NTL-825")
        name = item.get("name")
        if name is not None and isinstance(name.value, str):
            if name.value in seen:
                report.add("NTL-826", name, what="expectation", name=name.value)
            seen.add(name.value)


# --- transfer ---------------------------------------------------------------------------------------------


def check_transfer(report: Report, task: Node, name: str) -> None:
    """The fields of a transfer task."""
    source = mapping(report, task.get("source"), "source")
    kind = choice(report, source.get("type"), "source.type", SOURCE_TYPES, "NTL-830")
    _note_missing(report, task, source, "source", (("type",), *_SOURCE_NEEDS.get(kind, ())), name)
    target = mapping(report, task.get("target"), "target")
    to = choice(report, target.get("type"), "target.type", TARGET_TYPES, "NTL-830")
    _note_missing(report, task, target, "target", (("type",), *_TARGET_NEEDS.get(to, (("table",),))), name)
    mapping(report, target.get("mapping"), "target.mapping")
    choice(report, task.get("mode"), "mode", TRANSFER_MODES, "NTL-831")
    bounded(report, task.get("chunk_size"), "chunk_size", CHUNK, "NTL-832")
    bounded(report, task.get("partitions"), "tool.partitions", PARTITIONS, "NTL-803")
    columns(report, task.get("by"), "tool.by")


def _note_missing(
    report: Report, task: Node, side: Node, label: str, needs: tuple[tuple[str, ...], ...], name: str
) -> None:
    """Of each group of fields one must be there."""
    if label not in task.entries or not side.entries:
        return
    for group in needs:
        if not any(field in side.entries for field in group):
            report.add("NTL-951", side, kind="transfer", task=name, field=f"{label}.{' or '.join(group)}")
