"""What a template will look up, known before it runs, so that the shell can fetch it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from noetl.playbook.templates import simple

if TYPE_CHECKING:
    from jinja2 import nodes

__all__ = ["find_paths"]

Path = tuple[str, ...]


@lru_cache(maxsize=4096)
def find_paths(text: str) -> frozenset[Path]:
    """The paths a template reads from its names, as far as they are written out.

    A path stands for all that is below it. It ends before an index, a computed key and the name of a method, so
    `{{ big.rows[5].c }}` gives `("big", "rows")` and `{{ big.get(key) }}` gives `("big",)` and `("key",)`.
    """
    sentence = simple.parse(text)
    if sentence is not None:
        return frozenset((path.root, *path.parts) for path in sentence.paths)
    return _through_jinja(text)


def _through_jinja(text: str) -> frozenset[Path]:
    from jinja2 import meta

    from noetl.playbook.templates.program import parse
    from noetl.playbook.templates.rewrite import judge

    tree = parse(text)
    judge(tree)
    found = _paths_in(tree)
    roots = meta.find_undeclared_variables(tree)  # this folds constants in the tree, so it comes last
    return frozenset(path for path in found if path[0] in roots)


def _paths_in(tree: nodes.Node) -> set[Path]:
    """Every chain of keys that starts at a name. Names that a template sets itself are among them."""
    from jinja2 import nodes

    found = set[Path]()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        path = _path_of(node)
        if path:
            found.add(path)
            continue
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            waiting.append(node.node.node)
            waiting += [child for child in node.iter_child_nodes() if child is not node.node]
        else:
            waiting += node.iter_child_nodes()
    return found


def _path_of(node: nodes.Node) -> Path:
    """The path that this node reads, or () if it is not one."""
    from jinja2 import nodes

    keys = list[str]()
    while True:
        if isinstance(node, nodes.Name):
            return (node.name, *reversed(keys)) if node.ctx == "load" else ()
        if isinstance(node, nodes.Getattr):
            keys.append(node.attr)
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            keys.append(node.arg.value)
        else:
            return ()
        node = node.node
