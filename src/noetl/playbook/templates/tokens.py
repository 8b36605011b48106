"""A look at a template before it is parsed, and at its expressions when something went wrong.

Jinja parses by recursion, so how deep it gets would depend on how deep its caller already is. Counting brackets and
blocks first makes the answer the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2.lexer import Lexer

from noetl.playbook.templates.errors import TemplateSyntax

__all__ = ["Expression", "check_nesting", "expressions"]

_MAX_TOKENS = 12_000
_MAX_BRACKETS = 20
_MAX_BLOCKS = 12
_MAX_RUN = 8  # of signs such as `not not -`
_MAX_ELSE = 16  # in one expression
_OPENING = {"(", "[", "{"}
_CLOSING = {")", "]", "}"}
_BLOCKS = {"if", "for", "macro", "call", "filter", "set", "with"}
_SIGNS = {"not", "-", "+"}


@dataclass(frozen=True, slots=True)
class Expression:
    """One `{{ ... }}` or `{% ... %}` as it is written."""

    line: int
    last_line: int
    text: str


def check_nesting(lexer: Lexer, text: str) -> None:
    """Refuse what would take the parser, or the reader, too deep."""
    nesting = _Nesting()
    for count, (line, kind, value) in enumerate(lexer.tokeniter(text, None)):
        if count > _MAX_TOKENS:
            raise TemplateSyntax("the template is too large", line=line)
        if kind not in ("data", "whitespace"):
            nesting.read(kind, value)
            if nesting.too_deep():
                raise TemplateSyntax("nested too deeply", line=line)


class _Nesting:
    """Where a reader of the tokens stands."""

    __slots__ = ("_first", "_setting", "blocks", "brackets", "elses", "run")

    def __init__(self) -> None:
        self.blocks = self.brackets = self.elses = self.run = 0
        self._first = self._setting = False

    def too_deep(self) -> bool:
        return (
            self.brackets > _MAX_BRACKETS or self.blocks > _MAX_BLOCKS or self.run > _MAX_RUN or self.elses > _MAX_ELSE
        )

    def read(self, kind: str, value: str) -> None:
        if kind in ("variable_begin", "block_begin"):
            self.brackets = self.run = self.elses = 0
            self._first, self._setting = kind == "block_begin", False
            return
        if self._first:
            self._enter(value)
        elif kind == "operator":
            self._bracket(value)
        self.run = self.run + 1 if value in _SIGNS else 0
        self.elses += kind == "name" and value == "else"

    def _enter(self, word: str) -> None:
        self._first = False
        self._setting = word == "set"
        if word.startswith("end"):
            self.blocks -= 1
        elif word in _BLOCKS:
            self.blocks += 1

    def _bracket(self, value: str) -> None:
        self.brackets += (value in _OPENING) - (value in _CLOSING)
        if value == "=" and self._setting and not self.brackets:
            self.blocks -= 1  # a set with a value has no block
            self._setting = False


def expressions(lexer: Lexer, text: str) -> Iterator[Expression]:
    """Every expression and statement of a template that can be parsed."""
    first, pieces = 0, list[str]()
    for line, kind, value in lexer.tokeniter(text, None):
        if kind in ("variable_begin", "block_begin"):
            first, pieces = line, []
        if kind != "data":
            pieces.append(value)
        if kind in ("variable_end", "block_end"):
            yield Expression(first, line, "".join(pieces).strip())
            pieces = []
