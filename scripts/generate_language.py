"""Write the reference pages of the language from what the code knows.

    python scripts/generate_language.py

`docs/reference/language.md` comes from the schemas and the table of tool kinds, `diagnostics.md` from the table of
codes. A test fails when a page on disk is not what this writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from noetl.playbook import schema
from noetl.playbook.codes import CODES
from noetl.playbook.kinds import KINDS
from noetl.playbook.source import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES
from noetl.playbook.words import BANNED, RESERVED

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"

_PARTS = {
    "": "Playbook",
    "metadata": "metadata",
    "executor": "executor",
    "keychain_entry": "Entry of the keychain",
    "workbook_entry": "Entry of the workbook",
    "step": "Step",
    "admit": "admit",
    "loop": "loop",
    "frame": "frame",
    "reduce": "reduce",
    "next": "next",
    "arc": "Arc",
    "task": "Task",
    "then": "then",
    "output": "output",
    "script": "script",
}
_MESSAGE_PARTS = {
    "": "Subscription",
    "spec": "spec of a subscription",
    "dispatch": "dispatch",
    "directive": "Directive",
    "ingress": "ingress",
    "spool": "spool",
}
_HUNDREDS = {
    "1": "The document",
    "2": "Steps and routing",
    "3": "Loops",
    "4": "Tasks and rules",
    "5": "Templates and fields of tools",
    "6": "Keychain",
    "7": "Subscriptions",
    "8": "Data stages",
    "9": "Older and doubtful forms",
}

_LANGUAGE = """\
# Language

Every key that a document may have. This page is written by `scripts/generate_language.py` from the schemas that
`noetl schema` prints. Where a cell says *template*, text with `{{ … }}` is accepted, and its value is checked
after rendering.

## YAML

One file may hold several documents, separated by `---`. Plain words mean what YAML 1.2 says, with fewer
surprises:

| written | read as |
|---|---|
| `true`, `false`, `null`, `~`, nothing | truth values and null |
| `yes`, `no`, `on`, `off` | text |
| `2024-01-31`, `12:30:00`, `1_000` | text |
| `007` | text: with a leading zero it is a code, not a quantity |
| `7`, `0x1f`, `0o17`, `1.5`, `1e3` | numbers |
| `.nan`, `.inf`, whole numbers of more than 64 bits | refused: JSON cannot carry them |

Anchors, aliases and merge keys (`<<`) work. A key must be text and must not be repeated; a tag other than those
of plain data is refused. A file has at most %(size)s Mi characters, %(values)s values with aliases written out,
and %(levels)s levels.
"""
_RESERVED = """\
## Reserved names

Iterators must not have these names; steps and tasks that have one cannot be read from templates:
"""
_DIAGNOSTICS = """\
# Diagnostics

What `noetl validate` can say. This page is written by `scripts/generate_language.py` from the table that the
validator uses. Each line prints as

```text
orders.yaml:7:26: NTL-208 error: arc target 'shipp' is not known (hint: did you mean 'ship'?)
```

Lines and columns count from 1 and point at the key or value in question or, when something is missing, at the
mapping that lacks it. An error rejects the document, a warning does not. A code never changes its meaning. Words
in braces are filled in; where no known name is near, the hint lists the known ones.

`--format json`, `sarif` and `github` give the same to scripts, code scanners and pull requests. Exit code 2 means
that there is an error; `--strict` lets warnings fail, too.
"""


# --- language.md ------------------------------------------------------------------------------------------


def language() -> str:
    """The page of keys, fields and choices."""
    playbook, messages = schema.playbook(), schema.subscription()
    lines = [_LANGUAGE % {"size": MAX_CHARACTERS // 2**20, "values": f"{MAX_NODES:,}", "levels": MAX_DEPTH}]
    for name, title in _PARTS.items():
        lines += _section(title, playbook["$defs"][name] if name else playbook)
    lines += ["## Tool kinds", ""]
    for kind in KINDS:
        if kind != "agent":
            lines += _kind(kind, playbook)
    for name, title in _MESSAGE_PARTS.items():
        lines += _section(title, messages["$defs"][name] if name else messages)
    names = ", ".join(f"`{name}`" for name in sorted(RESERVED))
    lines += [_RESERVED, f"{names}.", ""]
    return "\n".join(lines)


def _section(title: str, part: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {title}", "")
    if part.get("description"):
        yield from (f"{_sentence(part['description'])}", "")
    yield from _table(part)


def _table(part: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| key | value | meaning |", "|---|---|---|")
    for name, kind, words in _rows(part, ""):
        yield f"| `{name}` | {kind} | {words} |"
    yield ""


def _rows(part: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    required = part.get("required", [])
    for name, value in part.get("properties", {}).items():
        words = value.get("description", "").replace("|", "\\|")
        words += " (required)" if name in required else ""
        words += f"; default `{_literal(value['default'])}`" if "default" in value else ""
        yield prefix + name, _shape(value), words
        if value.get("type") == "object" and "properties" in value:
            yield from _rows(value, f"{prefix}{name}.")


def _shape(value: Mapping[str, Any]) -> str:
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if "$ref" in value:
        return str(value["$ref"]).rsplit("/", 1)[-1].replace("_", " ")
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_shape(option) for option in value["anyOf"]))
    if value.get("type") == "array":
        inner = _shape(value.get("items", {}))
        return f"list of {inner}" if inner != "anything" else "list"
    return _plain(value)


def _plain(value: Mapping[str, Any]) -> str:
    words = {
        "object": "mapping",
        "string": "text",
        "integer": "whole number",
        "boolean": "truth value",
        "array": "list",
    }
    pattern = str(value.get("pattern", ""))
    if pattern.startswith("\\{"):
        return "template"
    if "us|ms" in pattern:
        return "duration (`30s`)"
    if "KMGT" in pattern:
        return "size (`64MiB`)"
    if pattern.startswith("^\\s*\\d+\\s*$"):
        return "whole number"
    kinds = value.get("type", "anything")
    return " or ".join(words.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, playbook: Mapping[str, Any]) -> Iterator[str]:
    known = KINDS[kind]
    yield from (f"### {kind}", "", known.about, "")
    if known.needs:
        needs = "; ".join(" or ".join(f"`{name}`" for name in dict.fromkeys(options)) for options in known.needs)
        yield from (f"Needs {needs}.", "")
    cases = playbook["$defs"]["task"]["allOf"]
    fields = next((case["then"] for case in cases if case["if"]["properties"]["kind"]["const"] == kind), None)
    if fields is not None:
        yield from _table(fields)


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


# --- diagnostics.md ---------------------------------------------------------------------------------------


def diagnostics() -> str:
    """The page of codes."""
    lines = [_DIAGNOSTICS]
    for digit, title in _HUNDREDS.items():
        lines += [f"## {title}", "", "| code | severity | about | message | hint |", "|---|---|---|---|---|"]
        for name, code in CODES.items():
            if name[4] == digit:
                lines.append(
                    f"| {name} | {code.severity} | {code.about} | {_cell(code.message)} | {_cell(code.hint)} |"
                )
        lines.append("")
    lines += ["## Keys of other dialects", "", "| key | where its meaning lives |", "|---|---|"]
    lines += [f"| `{key}` | `{instead}` |" for key, instead in BANNED.items()]
    lines += ["| `db_host` and the like | a credential in `auth` |", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return f"`{text.replace('{{', '{').replace('}}', '}').replace('|', chr(92) + '|')}`"


def pages() -> dict[Path, str]:
    """Each page and what should stand in it."""
    return {PAGES / "language.md": language(), PAGES / "diagnostics.md": diagnostics()}


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))
