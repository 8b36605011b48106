"""From the tree that Jinja parses to the tree that may run.

First the tree is judged: statements that reach for other templates, unknown words, and more nodes or nesting than
a person would write are refused. Then everything whose cost Jinja would not let us see is turned into a call that
counts: loops, comparisons, slices, `~`, and text inside of blocks that are captured or repeated.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from noetl.playbook.templates.errors import TemplateSyntax
from noetl.playbook.templates.vocabulary import FILTERS, TESTS

__all__ = ["MAX_NODES", "judge", "native_expression", "rewrite"]

MAX_NODES = 5_000
_MAX_NESTING = 90  # Python accepts 200 parentheses within each other
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Block: "block",
    nodes.Extends: "extends",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "import",
    nodes.ScopedEvalContextModifier: "autoescape",
}
_TESTING = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}

N = TypeVar("N", bound=nodes.Node)


def judge(tree: nodes.Template) -> int:
    """Refuse what must not run. Gives the number of nodes."""
    count = 0
    for node, depth in _nodes_of(tree):
        count += 1
        if count > MAX_NODES or depth > _MAX_NESTING:
            raise TemplateSyntax("the template is too large" if count > MAX_NODES else "nested too deeply")
        _judge_node(node)
    return count


def _nodes_of(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(child, depth + 1) for child in node.iter_child_nodes()]


def _judge_node(node: nodes.Node) -> None:
    refused = _REFUSED.get(type(node))
    if refused:
        raise TemplateSyntax(f"the statement '{refused}' is not allowed", line=node.lineno)
    if isinstance(node, nodes.Name) and node.name == "self":
        raise TemplateSyntax("the name 'self' is not available", line=node.lineno)
    if isinstance(node, nodes.Const) and isinstance(node.value, float) and not math.isfinite(node.value):
        raise TemplateSyntax("a number is too large", line=node.lineno)
    if isinstance(node, nodes.Filter):
        _judge_word("filter", node.name, FILTERS, node.lineno)
        if node.name == "map":
            _judge_argument("filter", node, 0, FILTERS)
        elif node.name in _TESTING:
            _judge_argument("test", node, _TESTING[node.name], TESTS)
    if isinstance(node, nodes.Test):
        _judge_word("test", node.name, TESTS, node.lineno)


def _judge_argument(what: str, node: nodes.Filter, at: int, known: frozenset[str]) -> None:
    """`map('uper')` names a filter in a string, which can be checked as well when it is written out."""
    if len(node.args) > at and isinstance(node.args[at], nodes.Const):
        _judge_word(what, str(node.args[at].as_const()), known, node.lineno)


def _judge_word(what: str, name: str, known: frozenset[str], line: int) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean '{near[0]}'?" if near else None
        raise TemplateSyntax(f"there is no {what} '{name}'", line=line, hint=hint)


def native_expression(text: str, tree: nodes.Template) -> nodes.Expr | None:
    """The expression, if the text is exactly one and nothing else."""
    trimmed = text.strip()
    if not (trimmed.startswith("{{") and trimmed.endswith("}}")) or len(tree.body) != 1:
        return None
    output = tree.body[0]
    if not isinstance(output, nodes.Output):
        return None
    inner = [node for node in output.nodes if not isinstance(node, nodes.TemplateData)]
    spaces = all(not node.data.strip() for node in output.nodes if isinstance(node, nodes.TemplateData))
    return inner[0] if len(inner) == 1 and spaces else None


def rewrite(tree: nodes.Template) -> nodes.Template:
    """The same template, with its costs in sight."""
    done: nodes.Template = _Rewriter().visit(tree)
    return done


class _Rewriter(NodeTransformer):
    def __init__(self) -> None:
        self._captured = 0

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - as Jinja names them
        weight = _weigh([node.test]) if node.test is not None else 0
        body = _weigh(node.body)
        self._inside(node)
        node.iter = _call("each!", node.iter, nodes.Const(weight))
        node.body.insert(0, _step(body, node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:  # noqa: N802
        self._count(node)
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:  # noqa: N802
        self._count(node)
        return node

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> nodes.FilterBlock:  # noqa: N802
        return self._inside(node)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.AssignBlock:  # noqa: N802
        return self._inside(node)

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Expr:  # noqa: N802
        """Text is printed once; inside of a block it may be repeated, so there it is counted when it is printed."""
        return nodes.Const(node.data, lineno=node.lineno) if self._captured else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        signs = nodes.Const(tuple(operand.op for operand in node.ops))
        return _call("compare!", node.expr, signs, *(operand.expr for operand in node.ops))

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("concat!", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        return _call("cut!", node.node, *(bound if bound is not None else nodes.Const(None) for bound in bounds))

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if node.expr2 is None:
            node.expr2 = _call("nothing!", nodes.Const(None, lineno=node.lineno))
        return node

    def _count(self, node: nodes.Macro | nodes.CallBlock) -> None:
        weight = _weigh(node.body)
        self._inside(node)
        node.body.insert(0, _step(weight, node.lineno))

    def _inside(self, node: N) -> N:
        self._captured += 1
        self.generic_visit(node)
        self._captured -= 1
        return node


def _weigh(body: Iterable[nodes.Node]) -> int:
    """Nodes that one pass evaluates at most. What loops inside of it do is counted by themselves."""
    count = 1
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        count += 1
        waiting += [node.iter] if isinstance(node, nodes.For) else list(node.iter_child_nodes())
    return count * 3 // 2  # most nodes cost a little more than the unit


def _step(weight: int, line: int) -> nodes.ExprStmt:
    return nodes.ExprStmt(_call("step!", nodes.Const(None, lineno=line), nodes.Const(weight)), lineno=line)


def _call(name: str, value: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    make: Callable[..., nodes.Filter] = nodes.Filter
    return make(value, name, list(args), [], None, None, lineno=value.lineno)
