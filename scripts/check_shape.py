"""Fail when code outgrows a screen or is left unfinished.

    python scripts/check_shape.py src

A function has at most 70 lines, a module at most 500, and nothing is marked as to be done later.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 500
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def problems(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if len(lines) > MAX_MODULE_LINES:
        yield f"{path}: {len(lines)} lines, the limit is {MAX_MODULE_LINES}; what second thing is it doing?"
    for number, line in enumerate(lines, start=1):
        if found := UNFINISHED.search(line):
            yield f"{path}:{number}: {found[0]}: finish it or leave it out"
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, the limit is {MAX_FUNCTION_LINES}"


def main() -> int:
    modules = sorted(path for root in sys.argv[1:] for path in Path(root).rglob("*.py"))
    found = [problem for path in modules for problem in problems(path)]
    print("\n".join(found) if found else f"Shape: {len(modules)} modules fit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
