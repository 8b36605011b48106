"""Source text as a function: its parameters are the inputs, its end tells what the code has left bound."""

from __future__ import annotations

import ast
import sys
from _thread import allocate_lock
from collections.abc import Collection, Iterable, Iterator
from keyword import iskeyword
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["END", "FILE_NAME", "Body", "Ending", "compile_body"]

FILE_NAME = "<code>"
END = "__noetl_end__"
_CACHE_SIZE = 256

_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_Comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Body(NamedTuple):
    """Compiled code, and what has to be known about it."""

    code: CodeType
    parameters: tuple[str, ...]
    assigned: frozenset[str]
    """Names that are assigned or imported at the top level."""
    defined: frozenset[str]
    """Functions of the top level."""
    shared: frozenset[str]
    """Names that some function declares global; then they are global at the top level too."""
    asynchronous: bool


class Ending:
    """What is returned when the code has reached its end without a `return`: its variables."""

    def __init__(self) -> None:
        self.variables = dict(sys._getframe(1).f_locals)  # noqa: SLF001 - the frame of the code is what is wanted


_cache: dict[tuple[str, tuple[str, ...]], Body] = {}
_guard = allocate_lock()  # of a process that runs code in several threads


def compile_body(source: str, inputs: tuple[str, ...], offered: Collection[str]) -> Body:
    """The function of a source with these inputs. Offered names become parameters if the code mentions them.

    Raises SyntaxError.
    """
    key = (source, inputs)
    with _guard:
        body = _cache.pop(key, None) or _compile(source, inputs, offered)
        _cache[key] = body
        if len(_cache) > _CACHE_SIZE:
            del _cache[next(iter(_cache))]
    return body


def _compile(source: str, inputs: tuple[str, ...], offered: Collection[str]) -> Body:
    tree = compile(source, FILE_NAME, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    names = _Names(tree.body)
    bound = [*inputs, *(name for name in offered if name in names.mentioned and name not in inputs)]
    parameters = tuple(name for name in bound if _is_parameter(name) and name not in names.shared)
    module = ast.Module(body=[*_futures(tree), _function(tree, parameters, names)], type_ignores=[])
    compiled = compile(ast.fix_missing_locations(module), FILE_NAME, "exec", dont_inherit=True)
    return Body(
        code=next(constant for constant in compiled.co_consts if isinstance(constant, CodeType)),
        parameters=parameters,
        assigned=frozenset(names.assigned),
        defined=frozenset(names.defined),
        shared=frozenset(names.shared),
        asynchronous=names.awaits,
    )


def _is_parameter(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name) and name != "__debug__"


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _futures(tree: ast.Module) -> list[ast.stmt]:
    """`from __future__` must stand at the top of a file, so these stay outside the function."""
    return [node for node in tree.body if _is_future(node)]


def _function(tree: ast.Module, parameters: Iterable[str], names: _Names) -> ast.stmt:
    statements: list[ast.stmt] = [node for node in tree.body if not _is_future(node)]
    if names.shared:
        statements.insert(0, ast.Global(names=sorted(names.shared)))
    ending = ast.Call(func=ast.Name(id=END, ctx=ast.Load()), args=[], keywords=[])
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(arg=name) for name in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    kind: Any = ast.AsyncFunctionDef if names.awaits else ast.FunctionDef
    made: ast.stmt = kind(
        name=FILE_NAME, args=arguments, body=[*statements, ast.Return(value=ending)], decorator_list=[], type_params=[]
    )
    return made


class _Names:
    """What the source does with names. Walks without recursion: a long sum is a deep tree."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.mentioned = set[str]()
        self.assigned = set[str]()
        self.defined = set[str]()
        self.shared = set[str]()
        self.awaits = False
        # A node, and whether it is inside a scope of its own.
        pending: list[tuple[ast.AST, bool]] = [(node, False) for node in body]
        while pending:
            node, inner = pending.pop()
            self._note(node)
            if not inner:
                self._note_at_top(node)
            pending.extend(_children(node, inner))

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self.mentioned.add(node.id)
        elif isinstance(node, ast.arg):
            self.mentioned.add(node.arg)
        elif isinstance(node, ast.Global):
            self.shared.update(node.names)

    def _note_at_top(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self.assigned.add(node.id)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            self.assigned.add(node.name)
        elif isinstance(node, ast.alias):
            self.assigned.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, _Functions):
            self.defined.add(node.name)
        elif isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
            self.awaits = True
        elif isinstance(node, ast.comprehension):
            self.awaits = self.awaits or bool(node.is_async)
        elif isinstance(node, (ast.Yield, ast.YieldFrom)):
            raise SyntaxError("'yield' outside function", (FILE_NAME, node.lineno, node.col_offset + 1, None))


def _children(node: ast.AST, inner: bool) -> Iterator[tuple[ast.AST, bool]]:
    """The parts of a node; those that are a scope of their own are inner."""
    own: list[Any] = []
    if isinstance(node, (*_Functions, ast.ClassDef)):
        own = node.body
    elif isinstance(node, ast.Lambda):
        own = [node.body]
    elif isinstance(node, ast.comprehension):
        own = [node.target]
    for child in ast.iter_child_nodes(node):
        yield child, inner or any(child is part for part in own)
