"""Small playbooks."""

from __future__ import annotations

import json
from typing import Any

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: team/t}\n"
HELLO = (
    HEAD
    + """\
workload: {who: world}
workflow:
  - step: start
    tool: {kind: noop, result: {greeting: "Hello, {{ who }}!"}}
    next: {arcs: [{step: words}]}
  - step: words
    loop: {in: [pear, fig], iterator: word, spec: {mode: sequential}}
    tool: {kind: noop, result: {word: "{{ word }}"}}
    next: {arcs: [{step: last}]}
  - step: last
    tool: {kind: noop, result: {said: "{{ start.greeting }}"}}
"""
)


def calling(kind: str, **fields: Any) -> str:
    """A playbook of one step, which calls a tool."""
    task = json.dumps({"kind": kind, **fields})
    return f"{HEAD}workflow:\n  - step: only\n    tool: {task}\n"


FAILING = calling("python", code="raise LookupError('<b>nothing</b> left')")
