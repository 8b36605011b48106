"""Templates, compiled once and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from noetl.playbook.templates import quick, simple
from noetl.playbook.templates.errors import TemplateError, TemplateSyntax
from noetl.playbook.templates.host import ALONE, Host

if TYPE_CHECKING:
    from noetl.playbook.templates.program import Program

__all__ = ["Template", "check", "compile", "is_template"]

_LARGE = 1 << 14
_KEPT = 4096
_KEPT_LARGE = 64


class Template:
    """Text to be rendered. Threads may share it."""

    __slots__ = ("_source", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._source = _read(text)

    @property
    def read(self) -> Callable[..., Any]:
        """`render`, for who says each time how."""
        return self._source.value if self._source else self.render

    @property
    def demand(self) -> tuple[str, Any] | None:
        """The path that a condition looks at first, and what has to be there for it to hold; None if unsure."""
        return self._source.demand if isinstance(self._source, quick.Quick) else None

    def render(self, names: Mapping[str, Any], *, strict: bool = False, host: Host = ALONE, lazy: bool = False) -> Any:
        """The native value if the text is exactly one expression, else a string. Raises a TemplateError.

        With `lazy`, a value that is a table, or its rows, is not turned into JSON.
        """
        return self._source.value(names, strict=strict, host=host, lazy=lazy) if self._source else self.text

    def render_text(self, names: Mapping[str, Any], *, strict: bool = False, host: Host = ALONE) -> str:
        """The text, also where it is exactly one expression."""
        return self._source.print(names, strict=strict, host=host) if self._source else self.text


def is_template(text: str) -> bool:
    """True if there is something to render. An unclosed `{{` counts: it was meant as one."""
    return "{{" in text or "{%" in text


def compile(text: str) -> Template:  # noqa: A001 - that is what it does
    """The template of a text, or TemplateSyntax. Compiled templates and failures are kept."""
    found = (_compiled if len(text) <= _LARGE else _compiled_large)(text)
    if isinstance(found, Template):
        return found
    raise TemplateSyntax(
        found.reason, line=found.line, column=found.column, expression=found.expression, hint=found.hint
    )


def check(text: str) -> str | None:
    """What is wrong with the syntax of a template, or None."""
    try:
        compile(text)
    except TemplateError as error:
        return str(error)
    return None


def _read(text: str) -> simple.Sentence | quick.Quick | Program | None:
    if not is_template(text):
        return None
    short = simple.parse(text) or quick.parse(text)
    if short is not None:
        return short
    from noetl.playbook.templates.program import Program

    return Program(text)


def _attempt(text: str) -> Template | TemplateSyntax:
    try:
        return Template(text)
    except TemplateSyntax as error:
        return error.with_traceback(None)


_compiled = lru_cache(maxsize=_KEPT)(_attempt)
_compiled_large = lru_cache(maxsize=_KEPT_LARGE)(_attempt)
