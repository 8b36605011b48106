"""What a plain word in YAML means.

The core schema of YAML 1.2, minus its traps. Only `true`, `false` and `null` (and `~`, and nothing at
all) are words with a meaning of their own: `yes`, `no`, `on` and `off` are text, as are dates, times,
`12:30:00`, `1_000`, and numbers with a leading zero, which are account numbers and postcodes far more
often than they are quantities. What JSON cannot carry, such as `.nan`, is refused.
"""

from __future__ import annotations

import re

__all__ = ["Scalar", "Unusable", "read_plain", "read_tagged"]

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_STARTS = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_MOST_DIGITS = 40


class Unusable(ValueError):
    """A number that no JSON reader would give back unchanged. The text says what would do."""


def read_plain(text: str) -> Scalar:
    """The value of an unquoted word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS:
        return text
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _NOT_FINITE.fullmatch(text):
        raise Unusable("a finite number")
    return text


def read_tagged(kind: str, text: str) -> Scalar:
    """The value of a word that says its type itself: `!!int "3"`. Raises Unusable if it is not of that type."""
    if kind == "str":
        return text
    value = read_plain(text)
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = {"int": int, "float": float, "bool": bool, "null": type(None)}
    if type(value) is not fits[kind]:
        raise Unusable(f"what its tag !!{kind} says")
    return value


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise Unusable("a whole number of at most 64 bits, or quoted")
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-")
    number = sign * int(digits, 8 if digits.startswith("0o") else 16 if digits.startswith("0x") else 10)
    if not _SMALLEST <= number <= _LARGEST:
        raise Unusable("a whole number of at most 64 bits, or quoted")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise Unusable("a finite number")
    return number
