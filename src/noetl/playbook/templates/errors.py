"""What can be wrong with a template, each with the code that a task error carries.

A message names the expression and its place in the text. It never holds a value: the value may be a secret.
"""

from __future__ import annotations

from typing import Self

from noetl.errors import InvalidInput

__all__ = ["TemplateError", "TemplateFailed", "TemplateLimit", "TemplateSyntax", "TemplateUndefined"]


class TemplateError(InvalidInput):
    """A template that gives no value. `line` and `column` count from 1 within the text of the template."""

    code = "TEMPLATE_ERROR"

    def __init__(
        self,
        reason: str,
        *,
        line: int | None = None,
        column: int | None = None,
        expression: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(reason + _place(line, column, expression), hint=hint)
        self.reason = reason
        self.line = line
        self.column = column
        self.expression = expression

    def at(self, line: int | None, column: int | None, expression: str | None) -> Self:
        """The same error, with its place in the text."""
        return type(self)(self.reason, line=line, column=column, expression=expression, hint=self.hint)


class TemplateSyntax(TemplateError):
    """Text that is not a template of this language: wrong syntax, an unknown filter, a refused statement."""

    code = "TEMPLATE_SYNTAX"


class TemplateUndefined(TemplateError):
    """An undefined value where one is needed."""

    code = "TEMPLATE_UNDEFINED"


class TemplateLimit(TemplateError):
    """A template that asks for more work, text or memory than one rendering may take."""

    code = "TEMPLATE_LIMIT"


class TemplateFailed(TemplateError):
    """An operation that the values do not allow, such as adding a number to a list."""


def _place(line: int | None, column: int | None, expression: str | None) -> str:
    if line is None:
        return ""
    where = f" at line {line}" if column is None else f" at line {line}, column {column}"
    return f"{where}: {expression}" if expression else where
