"""What is wrong with a document, where, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.playbook.codes import CODES, Severity

if TYPE_CHECKING:
    from noetl.playbook.document import Position

__all__ = ["Placed", "Problem", "Report", "closest"]

_LONGEST_WORD = 80
_LONGEST_DETAIL = 300
_LONG_WORDS = frozenset({"allowed", "bound", "detail", "fields", "shape"})
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_MOST_SHOWN = 8
_MOST_GUESSES = 200  # comparing every wrong name with every right one would take the square of their number


class Placed(Protocol):
    """Something that stands somewhere in a file."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One diagnostic; as text it is the line that compilers have taught everybody to read."""

    code: str
    severity: Severity
    line: int
    column: int
    message: str
    hint: str
    file: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.code} {self.severity}: {self.message} (hint: {self.hint})"

    @property
    def is_error(self) -> bool:
        """Whether it rejects the document."""
        return self.severity == "error"


class Report:
    """Collects the problems of one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._problems: dict[tuple[int, int, str, str], Problem] = {}
        self._guesses = 0

    def add(self, code: str, at: Placed | Position, *, hint: str | None = None, **words: Any) -> None:
        """Note a problem. The same thing said twice of one place, as an alias makes it, is one problem."""
        known = CODES[code]
        filled = {name: _word(name, value) for name, value in words.items()}
        message = known.message.format(**filled)
        self._problems.setdefault(
            (at.line, at.column, code, message),
            Problem(
                code=code,
                severity=known.severity,
                line=at.line,
                column=at.column,
                message=message,
                hint=known.hint.format(**filled) if hint is None else hint,
                file=self._file,
            ),
        )

    def unknown(self, code: str, at: Placed | Position, name: str, known: Iterable[str], **words: Any) -> None:
        """Note a name that nobody knows, with the one that was probably meant."""
        self._guesses += 1
        near, hint = closest(name, known) if self._guesses <= _MOST_GUESSES else ("", "see the first of these")
        self.add(code, at, name=name, near=near, hint=hint, **words)

    def has(self, codes: Iterable[str]) -> bool:
        """Whether one of these has been found."""
        wanted = set(codes)
        return any(problem.code in wanted for problem in self._problems.values())

    @property
    def errors(self) -> int:
        """How many errors there are so far."""
        return sum(problem.is_error for problem in self._problems.values())

    def problems(self) -> tuple[Problem, ...]:
        """All of them in order of position."""
        return tuple(value for _, value in sorted(self._problems.items()))


def closest(name: str, known: Iterable[str]) -> tuple[str, str | None]:
    """The known name nearest to `name` and no hint of our own; or, where none is near, a hint that lists them."""
    from difflib import get_close_matches

    names = [candidate for candidate in known if candidate]
    name = name[:_LONGEST_WORD]
    by_case = {candidate.lower(): candidate for candidate in reversed(names) if len(candidate) <= _LONGEST_WORD}
    if found := get_close_matches(name.lower(), by_case, n=1):
        return by_case[found[0]], None
    shown = ", ".join(f"'{_cut(candidate, _LONGEST_WORD)}'" for candidate in names[:_MOST_SHOWN])
    more = ", …" if len(names) > _MOST_SHOWN else ""
    return "", f"known: {shown}{more}" if names else "there is none yet"


def _word(name: str, value: Any) -> str:
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dict | list):
        text = "a mapping" if isinstance(value, dict) else "a list"
    elif isinstance(value, tuple):
        text = ", ".join(map(str, value))
    else:
        text = str(value)
    if name == "char":
        return _BREAKS.sub(" ", text)
    return _cut(_BREAKS.sub(" ", text).strip(), _LONGEST_DETAIL if name in _LONG_WORDS else _LONGEST_WORD)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
