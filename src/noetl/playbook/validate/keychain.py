"""`keychain` and `workbook`: what tasks refer to by name."""

from __future__ import annotations

from collections.abc import Iterator

from noetl.playbook.document import KeychainEntry, Task, WorkbookEntry, pointer
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.shapes import Context, choice, entries, ignore_unknown, mapping, texts, truth, words
from noetl.playbook.validate.tasks import read_task
from noetl.playbook.validate.templates import check_loose
from noetl.playbook.words import KEYCHAIN_KINDS, KEYCHAIN_SCOPES

__all__ = ["read_keychain", "read_workbook"]

_HEAD = ("name", "kind", "type", "scope", "auto_renew")


def read_keychain(report: Report, node: Node | None) -> tuple[KeychainEntry, ...]:
    """The secrets of a playbook, in order: a later entry may use an earlier one."""
    found: list[KeychainEntry] = []
    names: set[str] = set()
    for index, item in enumerate(entries(report, node, "keychain")):
        name = _required(report, item, "name", "crm_token")
        if name and name in names:
            report.add("NTL-603", item.entries["name"], what="keychain entry", name=name)
        names.add(name)
        kind = _read_kind(report, item)
        check_loose(report, item, "keychain")
        fields = {key: value.data() for key, value in item.entries.items() if key not in _HEAD}
        if kind == "credential" and "credential" not in fields and "ref" in fields:
            fields["credential"] = fields.pop("ref")
        scope = choice(report, item.get("scope"), "keychain.scope", KEYCHAIN_SCOPES, "NTL-604", default="global")
        found.append(
            KeychainEntry(
                name=name,
                kind=kind,
                scope=scope,
                auto_renew=truth(report, item.get("auto_renew"), "keychain.auto_renew"),
                fields=fields,
                at=pointer("keychain", index),
            )
        )
    return tuple(found)


def _required(report: Report, item: Node, field: str, sample: str) -> str:
    value = item.get(field)
    if value is None or not isinstance(value.value, str) or not value.value:
        report.add("NTL-601", item if value is None else value, what="keychain entry", field=field, sample=sample)
        return ""
    return value.value


def _read_kind(report: Report, item: Node) -> str:
    key = "kind"
    if "type" in item.entries:
        report.add("NTL-940", item.key("type"))
        key = "kind" if "kind" in item.entries else "type"
    if key not in item.entries:
        key = "kind"
    kind = _required(report, item, key, "secrets")
    if not kind or kind in KEYCHAIN_KINDS:
        return kind
    at = item.entries[key]
    if kind == "secret_manager":
        report.add("NTL-941", at, value=kind, kind="secrets")
        return "secrets"
    if "ref" in item.entries or "credential" in item.entries:
        report.add("NTL-941", at, value=kind, kind="credential")
        return "credential"
    report.unknown("NTL-602", at, kind, KEYCHAIN_KINDS, what="keychain kind")
    return kind


# --- Workbook ---------------------------------------------------------------------------------------------


def read_workbook(context: Context, node: Node | None) -> dict[str, WorkbookEntry]:
    """The reusable tasks of a playbook by name."""
    found: dict[str, WorkbookEntry] = {}
    listed = list(_entries(context, node))
    context.workbook = {str(name.value) for _, name, _ in listed if name is not None}
    for at, name, item in listed:
        if name is None or not isinstance(name.value, str) or not name.value:
            context.report.add(
                "NTL-102", item if name is None else name, field="name of a workbook entry", shape="text"
            )
            continue
        if name.value in found:
            context.report.add("NTL-112", name, what="workbook entry", name=name.value)
        found.setdefault(name.value, _read_entry(context, item, name.value, at))
    return found


def _entries(context: Context, node: Node | None) -> Iterator[tuple[str, Node | None, Node]]:
    """Pointer, name and body of each entry, also of the older mapping."""
    if node is not None and node.is_mapping:
        context.report.add("NTL-904", node)
        for index, (key, item) in enumerate(node.entries.items()):
            at = node.key(key)
            if item.is_mapping:
                context.moved[pointer("workbook", index)] = item
                yield pointer("workbook", index), Node(key, at.line, at.column), item
            else:
                context.report.add("NTL-102", item, field=f"workbook.{key}", shape="a mapping")
        return
    for index, item in enumerate(entries(context.report, node, "workbook", shape="a list of entries")):
        yield pointer("workbook", index), item.get("name"), item


def _read_entry(context: Context, item: Node, name: str, at: str) -> WorkbookEntry:
    report, tool = context.report, item.get("tool")
    ignore_unknown(report, item, "workbook entry", ("name", "desc", "tool", "assert"))
    place = pointer(at, "tool")
    if tool is not None and tool.is_mapping:
        task = read_task(context, tool, [name], 0, place)
    else:
        report.add("NTL-204", item if tool is None else tool, field="tool", shape="a mapping")
        task = Task(name=name, kind="noop", at=place)
    asserted = mapping(report, item.get("assert"), "assert")
    return WorkbookEntry(
        name=name,
        desc=words(report, item.get("desc"), "desc"),
        task=task,
        expects=texts(report, asserted.get("expects"), "assert.expects"),
        returns=texts(report, asserted.get("returns"), "assert.returns"),
    )
