"""What Python code in a task reads without having been given it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

__all__ = ["reads_data"]

_DATA = re.compile(r"\bdata\b")


def reads_data(code: str) -> bool:
    """Whether code reads the name `data` and never binds it.

    Code that is no Python before its templates are rendered is left alone.
    """
    if not _DATA.search(code):
        return False
    import ast

    try:
        tree = ast.parse("def task():\n" + "".join(f" {line}\n" for line in code.splitlines()) + " pass\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    read = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "data":
            if not isinstance(node.ctx, ast.Load):
                return False
            read = True
        elif "data" in _bound_by(node):
            return False
    return read


def _bound_by(node: ast.AST) -> tuple[str, ...]:
    """The names that parameters, imports and definitions bind."""
    import ast

    if isinstance(node, ast.arg):
        return (node.arg,)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.split(".")[0],)
    return (node.name,) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ()
