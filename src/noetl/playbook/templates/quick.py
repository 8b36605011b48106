"""Templates that Jinja need not be asked for: lookups with a filter that everybody uses, plain conditions, small sums.

`{{ a.b | int }}`, `{{ a | tojson | replace("'", "''") }}`, `{{ a.b == 'x' and a.c }}` and `{{ page + 1 }}` are what
rows of a data stage render again and again. Here they are read for the ordinary case only: values that are there, of
plain types, of moderate size. Whatever else turns up goes to Jinja, so there is one meaning (a property test says so),
not two.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.playbook.templates.errors import TemplateError
from noetl.playbook.templates.host import Host
from noetl.playbook.templates.limits import USUAL, survey
from noetl.playbook.templates.simple import Path, is_text_only, path_of
from noetl.playbook.templates.text import to_json
from noetl.playbook.templates.views import MISSING, ResultView

if TYPE_CHECKING:
    from noetl.playbook.templates.limits import Limits
    from noetl.playbook.templates.program import Program

__all__ = ["Quick", "parse"]

_PATH = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_TEXT = r"'[^'\"\\{}\r\n]*'|\"[^\"\\{}\r\n]*\""
_FILTER = rf"\s*\|\s*(?:int|tojson|replace\(\s*(?:{_TEXT})\s*,\s*(?:{_TEXT})\s*\))"
_EXPRESSION = re.compile(rf"\{{\{{\s*({_PATH})((?:{_FILTER})*)\s*\}}\}}")
_FILTERS = re.compile(rf"\s*\|\s*(int|tojson|replace)(?:\(\s*({_TEXT})\s*,\s*({_TEXT})\s*\))?")
_CONSTANT = rf"{_TEXT}|-?(?:0|[1-9][0-9]{{0,14}})(?:\.[0-9]{{1,15}})?|true|false|none|True|False|None"
_TERM = rf"(?:not\s+)?{_PATH}(?:\s*(?:==|!=|<=|>=|<|>)\s*(?:{_CONSTANT}))?"
_CONDITION = re.compile(rf"\s*\{{\{{\s*({_TERM}(?:(?:\s+and\s+{_TERM})*|(?:\s+or\s+{_TERM})*))\s*\}}\}}\s*")
_PARTS = re.compile(rf"(not\s+)?({_PATH})(?:\s*(==|!=|<=|>=|<|>)\s*({_CONSTANT}))?(?:\s+(and|or)\s+)?")
_SUM = re.compile(rf"\s*\{{\{{\s*({_PATH})\s*\+\s*(?:([0-9]{{1,9}})|\[\s*({_PATH})\s*\])\s*\}}\}}\s*")

_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "none": None}
_SIGNS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_EQUALITY = frozenset({"==", "!="})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_NUMBERS = frozenset({int, float})

_MOST_EXPRESSIONS = 16
_MOST_BITS = 4096
_MOST_DIGITS = 18
_MOST_ELEMENTS = 20_000
_MOST_TEXT = 1 << 16
_LEAST_WORK = 400_000
"""Within these bounds no limit of a rendering can be reached, whatever the template does of what is read here."""


class _Unsure(Exception):
    """Not the ordinary case: Jinja knows."""


class Quick:
    """A template of which the ordinary case is read here. The program of Jinja is made when it is first needed."""

    __slots__ = ("_program", "_short", "text")

    def __init__(self, text: str, short: _Phrase | _Condition | _Sum) -> None:
        self.text = text
        self._short = short
        self._program: Program | None = None

    @property
    def demand(self) -> tuple[str, Any] | None:
        """What has to be equal to what for a condition to hold, if it begins with that; its path as it is written."""
        return self._short.demand if isinstance(self._short, _Condition) else None

    def value(self, names: Mapping[str, Any], *, strict: bool, host: Host, lazy: bool = False) -> Any:
        """The native value if the text is one expression, else the text."""
        try:
            if _is_roomy(host.limits):
                return self._short.value(names, strict)
        except (_Unsure, TemplateError):
            pass
        return self._jinja().value(names, strict=strict, host=host, lazy=lazy)

    def print(self, names: Mapping[str, Any], *, strict: bool, host: Host) -> str:
        """The text, also of a single expression."""
        try:
            if _is_roomy(host.limits):
                return self._short.print(names)
        except (_Unsure, TemplateError):
            pass
        return self._jinja().print(names, strict=strict, host=host)

    def _jinja(self) -> Program:
        if self._program is None:
            from noetl.playbook.templates.program import Program

            self._program = Program(self.text)
        return self._program


def _is_roomy(limits: Limits) -> bool:
    if limits is USUAL:
        return True
    return limits.work >= _LEAST_WORK and limits.text >= _MOST_TEXT and limits.value >= _MOST_TEXT


def parse(text: str) -> Quick | None:
    """The template, if all of it is of a form that is known here."""
    short = _condition(text) or _sum(text) or _phrase(text)
    return None if short is None else Quick(text, short)


# --- Lookups with filters ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Expression:
    """`{{ path | filter }}`"""

    path: Path
    filters: tuple[Callable[[Any], Any], ...]

    def value(self, names: Mapping[str, Any]) -> Any:
        found = self.path.look_up(names)
        for apply in self.filters:
            found = apply(found)
        if type(found) not in _SCALARS:  # a missing value too
            raise _Unsure
        return found


@dataclass(frozen=True, slots=True)
class _Phrase:
    """Text with expressions between its literal pieces; there is one piece more than expressions."""

    pieces: tuple[str, ...]
    expressions: tuple[_Expression, ...]
    whole: bool

    def value(self, names: Mapping[str, Any], strict: bool) -> Any:
        return self.expressions[0].value(names) if self.whole else self.print(names)

    def print(self, names: Mapping[str, Any]) -> str:
        done = [self.pieces[0]]
        for number, expression in enumerate(self.expressions, 1):
            found = expression.value(names)
            done.append(found if type(found) is str else _printed(found))
            done.append(self.pieces[number])
        printed = "".join(done)
        if len(printed) > _MOST_TEXT:
            raise _Unsure
        return printed


def _phrase(text: str) -> _Phrase | None:
    found = list(_EXPRESSION.finditer(text))
    pieces, reached = list[str](), 0
    for match in found:
        pieces.append(text[reached : match.start()])
        reached = match.end()
    pieces.append(text[reached:])
    if not found or len(found) > _MOST_EXPRESSIONS or not is_text_only(pieces):
        return None
    expressions = list[_Expression]()
    for match in found:
        path = path_of(match[1], match.start())
        if path is None:
            return None
        expressions.append(_Expression(path, tuple(_filter(*one.groups()) for one in _FILTERS.finditer(match[2]))))
    whole = len(expressions) == 1 and not any(piece.strip() for piece in pieces)
    return _Phrase(tuple(pieces), tuple(expressions), whole)


def _filter(name: str, old: str | None, new: str | None) -> Callable[[Any], Any]:
    if old is None or new is None:
        return _int if name == "int" else _tojson
    before, after = old[1:-1], new[1:-1]

    def replace(value: Any) -> str:
        if type(value) is not str or len(value) > _MOST_TEXT or not before:
            raise _Unsure
        return value.replace(before, after)

    return replace


def _int(value: Any) -> int:
    if type(value) is int and value.bit_length() <= _MOST_BITS:
        return value
    if type(value) is str and len(value) <= _MOST_DIGITS and value.isascii() and value.isdigit():
        return int(value)
    raise _Unsure


def _tojson(value: Any) -> str:
    if type(value) is ResultView:
        value = value.plain()
    kind = type(value)
    if kind is dict or kind is list:
        cost, is_plain = survey(value, _MOST_ELEMENTS)
        if cost > _MOST_ELEMENTS or not is_plain:
            raise _Unsure
    elif kind not in _SCALARS:
        raise _Unsure
    done = to_json(value)
    if len(done) > _MOST_TEXT:
        raise _Unsure
    return done


def _printed(value: Any) -> str:
    if type(value) is int and value.bit_length() > _MOST_BITS:
        raise _Unsure
    return str(value)


# --- Conditions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Term:
    """`path`, `path == 'x'`, and each of them with `not`."""

    path: Path
    sign: str
    constant: Any
    is_negated: bool

    def value(self, names: Mapping[str, Any]) -> Any:
        found = self.path.look_up(names)
        if self.sign:
            found = self._compared(found)
        elif found is not MISSING and type(found) not in _SCALARS:
            raise _Unsure
        return not found if self.is_negated else found

    def _compared(self, found: Any) -> Any:
        if found is MISSING and self.sign in _EQUALITY:
            return self.sign == "!="
        if type(found) not in (_SCALARS if self.sign in _EQUALITY else _NUMBERS):
            raise _Unsure
        return _SIGNS[self.sign](found, self.constant)


@dataclass(frozen=True, slots=True)
class _Condition:
    """Terms with `and` between all of them, or with `or`."""

    terms: tuple[_Term, ...]
    until: bool
    """The truth of the term that decides: false for `and`, true for `or`."""

    @property
    def demand(self) -> tuple[str, Any] | None:
        """The first term, where nothing that follows can make up for it."""
        first = self.terms[0]
        if first.sign != "==" or first.is_negated or (self.until and len(self.terms) > 1):
            return None
        return ".".join((first.path.root, *first.path.parts)), first.constant

    def value(self, names: Mapping[str, Any], strict: bool) -> Any:
        found: Any = None
        for term in self.terms:
            found = term.value(names)
            if bool(found) is self.until:
                break
        if found is MISSING:
            if strict:
                raise _Unsure
            return None
        return found

    def print(self, names: Mapping[str, Any]) -> str:
        raise _Unsure


def _condition(text: str) -> _Condition | None:
    match = _CONDITION.fullmatch(text)
    if match is None:
        return None
    terms, words = list[_Term](), set[str]()
    for part in _PARTS.finditer(match[1]):
        negated, name, sign, constant, word = part.groups()
        path = path_of(name, 0)
        if path is None or (sign and sign not in _EQUALITY and not _is_number(constant)):
            return None
        terms.append(_Term(path, sign or "", _constant(constant) if sign else None, negated is not None))
        words |= {word} - {None}
    return _Condition(tuple(terms), words == {"or"}) if len(terms) <= _MOST_EXPRESSIONS else None


def _is_number(constant: str) -> bool:
    return constant[0] in "-0123456789"


def _constant(written: str) -> Any:
    if written[0] in "'\"":
        return written[1:-1]
    if written.lower() in _WORDS:
        return _WORDS[written.lower()]
    return float(written) if "." in written else int(written)


# --- Sums -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sum:
    """`path + 1` for whole numbers, `path + [path]` for lists."""

    path: Path
    number: int
    item: Path | None

    def value(self, names: Mapping[str, Any], strict: bool) -> Any:
        found = self.path.look_up(names)
        if self.item is None:
            if type(found) is not int or found.bit_length() > _MOST_BITS:
                raise _Unsure
            return found + self.number
        item = self.item.look_up(names)
        if type(found) is not list or item is MISSING:
            raise _Unsure
        longer = [*found, item]
        cost, is_plain = survey(longer, _MOST_ELEMENTS)
        if cost > _MOST_ELEMENTS or not is_plain:
            raise _Unsure
        return longer

    def print(self, names: Mapping[str, Any]) -> str:
        raise _Unsure


def _sum(text: str) -> _Sum | None:
    match = _SUM.fullmatch(text)
    if match is None:
        return None
    path = path_of(match[1], 0)
    item = None if match[3] is None else path_of(match[3], 0)
    if path is None or (item is None and (match[2] is None or str(int(match[2])) != match[2])):
        return None
    return _Sum(path, int(match[2] or 0), item)
