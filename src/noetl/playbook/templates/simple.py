"""Templates that only look names up, rendered without Jinja.

Most templates are `{{ a.b.c }}`, or text with a few of these inside. Reading them here gives exactly what Jinja
would give (a property test says so), several times faster, and a playbook that needs no more never imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noetl.playbook.templates.errors import TemplateLimit, TemplateUndefined
from noetl.playbook.templates.host import Host
from noetl.playbook.templates.lookup import attribute
from noetl.playbook.templates.plain import hand_over
from noetl.playbook.templates.text import print_plain
from noetl.playbook.templates.views import MISSING
from noetl.playbook.templates.vocabulary import FUNCTIONS

__all__ = ["Path", "Sentence", "is_text_only", "parse", "path_of"]

_LOOKUP = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*\}\}")
_WORDS = frozenset({"true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else"})
_NOT_NAMES = _WORDS | FUNCTIONS | {"self"}
_MAX_PARTS = 50
_MARKS = ("{{", "{%", "{#", "\r")


@dataclass(frozen=True, slots=True)
class Path:
    """`{{ root.part.part }}`"""

    root: str
    parts: tuple[str, ...]
    offset: int

    def look_up(self, names: Mapping[str, Any]) -> Any:
        try:
            value = names[self.root]
        except KeyError:
            return MISSING
        for part in self.parts:
            value = value.get(part, MISSING) if type(value) is dict else attribute(value, part)
        return value

    def undefined(self, text: str) -> TemplateUndefined:
        name = ".".join((self.root, *self.parts))
        line = text.count("\n", 0, self.offset) + 1
        column = self.offset - text.rfind("\n", 0, self.offset)
        return TemplateUndefined(f"'{name}' is undefined", line=line, column=column, expression=f"{{{{ {name} }}}}")


@dataclass(frozen=True, slots=True)
class Sentence:
    """Text with lookups between its literal pieces; there is one piece more than lookups."""

    text: str
    pieces: tuple[str, ...]
    paths: tuple[Path, ...]
    whole: bool

    def value(self, names: Mapping[str, Any], *, strict: bool, host: Host, lazy: bool = False) -> Any:
        """The native value if the text is one lookup, else the text."""
        if not self.whole:
            return self.print(names, strict=strict, host=host)
        found = self.paths[0].look_up(names)
        if found is MISSING:
            if strict:
                raise self.paths[0].undefined(self.text)
            return None
        return hand_over(found, lazy=lazy)

    def print(self, names: Mapping[str, Any], *, strict: bool, host: Host) -> str:
        done = [self.pieces[0]]
        for path, piece in zip(self.paths, self.pieces[1:], strict=True):
            found = path.look_up(names)
            if found is not MISSING:
                done.append(found if type(found) is str else print_plain(found, host.limits))
            elif strict:
                raise path.undefined(self.text)
            done.append(piece)
        printed = "".join(done)
        if len(printed) > host.limits.text:
            raise TemplateLimit(f"the template prints more than {host.limits.text} characters")
        return printed


def parse(text: str) -> Sentence | None:
    """The template as lookups, or None if it is more than that."""
    found = _LOOKUP.split(text)
    pieces = found[::2]
    if not is_text_only(pieces):
        return None
    paths = list[Path]()
    for match in _LOOKUP.finditer(text):
        path = path_of(match[1], match.start())
        if path is None:
            return None
        paths.append(path)
    whole = len(paths) == 1 and not any(piece.strip() for piece in pieces)
    return Sentence(text, tuple(pieces), tuple(paths), whole)


def is_text_only(pieces: Sequence[str]) -> bool:
    """Whether what stands around expressions is text, in which Jinja finds nothing of its own."""
    return not any(mark in piece for piece in pieces for mark in _MARKS) and not any(
        piece.endswith("{") for piece in pieces[:-1]
    )


def path_of(written: str, offset: int) -> Path | None:
    """A dotted path that stands there, or None if it is a word of the language."""
    root, *parts = written.split(".")
    return None if root in _NOT_NAMES or len(parts) > _MAX_PARTS else Path(root, tuple(parts), offset)
