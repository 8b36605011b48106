"""A template that needs Jinja: compiled once, run against many names.

Importing this module imports Jinja, so it is imported where the first such template turns up.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.utils import missing

from noetl.errors import NoetlError
from noetl.playbook.templates.environment import LENIENT, NATIVE, STRICT, RenderContext, Sandbox
from noetl.playbook.templates.errors import (
    TemplateError,
    TemplateFailed,
    TemplateLimit,
    TemplateSyntax,
    TemplateUndefined,
)
from noetl.playbook.templates.host import Host
from noetl.playbook.templates.rewrite import judge, native_expression, rewrite
from noetl.playbook.templates.tokens import check_nesting, expressions

__all__ = ["Program", "parse"]

MAX_SOURCE = 4 << 20
_FILE = "<template>"
_PLAIN_REASONS = (TypeError, ZeroDivisionError, OverflowError)  # these name types, never values
_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    jinja2.TemplateError,
)


def parse(text: str) -> nodes.Template:
    """The tree of a template, or TemplateSyntax."""
    if len(text) > MAX_SOURCE:
        raise TemplateSyntax(f"a template has at most {MAX_SOURCE} characters")
    try:
        check_nesting(LENIENT.lexer, text)
        return _for_newlines(text).parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateSyntax(_sentence(error.message or "wrong syntax"), line=error.lineno) from None
    except (RecursionError, ValueError, AssertionError):
        raise TemplateSyntax("cannot be parsed") from None


class Program:
    """One template, ready to run. It holds no state between runs, so threads may share it."""

    __slots__ = ("_native", "_text", "_weight", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        tree = parse(text)
        self._weight = judge(tree)
        expression = native_expression(text, tree)
        self._text: jinja2.Template | None = None
        self._native: jinja2.Template | None = None
        if expression is None:
            self._text = _compile(tree, _for_newlines(text))
        else:
            output = nodes.Output([expression], lineno=expression.lineno)
            self._native = _compile(nodes.Template([output], lineno=1), NATIVE)

    def value(self, names: Mapping[str, Any], *, strict: bool, host: Host, lazy: bool = False) -> Any:
        """The native value of a single expression, else the text."""
        template = self._native
        if template is None:
            return self.print(names, strict=strict, host=host)
        environment = STRICT if strict else LENIENT
        context = RenderContext(environment, names, host, self._weight)
        try:
            return context.clean(next(_root(template, context, environment)), lazy=lazy)
        except Exception as error:
            self._explain(error, template)

    def print(self, names: Mapping[str, Any], *, strict: bool, host: Host) -> str:
        """The text, also of a single expression."""
        template = self._text
        if template is None:
            template = self._text = _compile(parse(self.text), _for_newlines(self.text))
        environment = STRICT if strict else LENIENT
        context = RenderContext(environment, names, host, self._weight)
        try:
            printed = "".join(_root(template, context, environment))
        except Exception as error:
            self._explain(error, template)
        if len(printed) > host.limits.text:
            raise TemplateLimit(f"the template prints more than {host.limits.text} characters")
        return printed

    def _explain(self, error: Exception, template: jinja2.Template) -> NoReturn:
        """Raise what went wrong as an error of this room, with its place. What is not the template's fault passes."""
        found = _translate(error)
        if found is None:
            raise error
        line = _line_of(error.__traceback__, template)
        if line is None:
            raise found from None
        raise found.at(*self._place(line, found.reason)) from None

    def _place(self, line: int, reason: str) -> tuple[int, int | None, str | None]:
        """Line, column and text of the expression at fault, as well as the line and the reason tell."""
        here = [one for one in expressions(LENIENT.lexer, self.text) if one.line <= line <= one.last_line]
        name = reason.split("'")[1].rpartition(".")[2] if reason.startswith("'") else ""
        named = [one for one in here if name and name in one.text]
        for one in named or (here if len(here) == 1 else []):
            source = self.text.splitlines()[one.line - 1]
            column = source.find(one.text.splitlines()[0])
            return one.line, column + 1 if column >= 0 else None, one.text
        return line, None, None


def _root(template: jinja2.Template, context: RenderContext, environment: Sandbox) -> Iterator[Any]:
    root: Any = template.root_render_func  # the code takes more than Jinja says: see `visit_Template` there
    running: Iterator[Any] = root(context, missing, environment)
    return running


def _compile(tree: nodes.Template, environment: Sandbox) -> jinja2.Template:
    tree.set_environment(environment)
    try:
        return environment.from_string(rewrite(tree))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateSyntax(_sentence(error.message or "wrong syntax"), line=error.lineno) from None
    except (builtins.SyntaxError, RecursionError, MemoryError, ValueError):
        raise TemplateSyntax("cannot be compiled, it may be nested too deeply") from None


_BY_NEWLINE: dict[str, Sandbox] = {"\n": LENIENT}


def _for_newlines(text: str) -> Sandbox:
    """Jinja writes all line ends in one way: in the way of the first one."""
    newline = "\r\n" if "\r\n" in text else "\r" if "\r" in text else "\n"
    if newline not in _BY_NEWLINE:
        _BY_NEWLINE[newline] = LENIENT.overlay(newline_sequence=newline)  # type: ignore[arg-type]  # one of three
    return _BY_NEWLINE[newline]


def _translate(error: Exception) -> TemplateError | None:
    if isinstance(error, TemplateError):
        return error
    if isinstance(error, NoetlError):
        return None
    if isinstance(error, jinja2.UndefinedError):
        return TemplateUndefined(error.message or "a value is undefined")
    if isinstance(error, RecursionError | MemoryError):
        return TemplateLimit("the template nests or allocates too much")
    if isinstance(error, _PLAIN_REASONS):
        return TemplateFailed(str(error))
    return TemplateFailed(f"the values do not fit ({type(error).__name__})") if isinstance(error, _FAILURES) else None


def _line_of(traceback: TracebackType | None, template: jinja2.Template) -> int | None:
    """The line of the template that was running, from the innermost frame of its code."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILE:
            line = template.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def _sentence(message: str) -> str:
    return message.rstrip(".").replace("\n", " ")
