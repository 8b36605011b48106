"""One segment of a name: percent-encoding both ways, and what a segment may say.

A name has one canonical spelling. Letters, digits and `- . _ ~` stand for themselves; every other
character is written as the upper-case `%XX` of its UTF-8 bytes. Reading is a little kinder: it also
takes escapes that were not needed, lower-case hex digits and the bare punctuation that a URL path may
hold, and what it returns prints canonically. Names are compared by code point: nothing is folded to
another case or Unicode form, because two texts that the author told apart must stay apart.
"""

from __future__ import annotations

import re
from functools import lru_cache

from noetl.errors import InvalidName

__all__ = ["bounded", "check", "check_label", "check_number", "decode", "encode", "read_number", "read_segment", "show"]

MAX_NUMBER = (1 << 63) - 1

_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]+")
_READABLE = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_SPELLING = tuple(chr(byte) if _UNRESERVED.fullmatch(chr(byte)) else f"%{byte:02X}" for byte in range(256))
_DIGEST_CHARS = 64
_KEPT = 1024
_SHOWN_CHARS = 80


def show(text: str) -> str:
    """Text as it may stand in a message or a log line: quoted, control characters escaped, not too long."""
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "...")


@lru_cache(_KEPT)
def encode(text: str) -> str:
    """The canonical spelling of any text."""
    if _UNRESERVED.fullmatch(text):
        return text
    return "".join([_SPELLING[byte] for byte in check_label("text", text).encode()])


def decode(spelling: str) -> str:
    """The text behind a spelling, canonical or not; what it says is not judged here."""
    if _UNRESERVED.fullmatch(spelling):
        return spelling
    if not _READABLE.fullmatch(spelling):
        raise _misspelled(spelling)
    return _ESCAPES.sub(_decode_run, spelling)


def _decode_run(escapes: re.Match[str]) -> str:
    try:
        return bytes.fromhex(escapes[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        raise InvalidName(f"the escapes {show(escapes[0])} are not UTF-8") from None


def _misspelled(spelling: str) -> InvalidName:
    fine = _READABLE.match(spelling)
    rest = spelling[fine.end() :] if fine else spelling
    if rest.startswith("%"):
        return InvalidName(f"{show(rest[:3])} is not an escape", hint="two hex digits follow '%'; itself it is %25")
    return InvalidName(f"character {show(rest[0])} must be percent-encoded", hint=f"write {encode(rest[0])}")


@lru_cache(_KEPT)
def check_label(role: str, text: str) -> str:
    """The text, if it may be part of a segment: anything that is not empty and has a UTF-8 form."""
    if not text:
        raise InvalidName(f"{role} is empty")
    if _SURROGATE.search(text):
        raise InvalidName(f"{role} {show(text)} holds a lone surrogate, which has no UTF-8 form")
    return text


@lru_cache(_KEPT)
def check(role: str, text: str) -> str:
    """The text, if it may be a whole segment."""
    check_label(role, text)
    if text in {".", ".."}:
        raise InvalidName(f"{role} {show(text)} is a relative path, not a name")
    if control := _CONTROL.search(text):
        raise InvalidName(f"{role} {show(text)} holds the control character U+{ord(control[0]):04X}")
    return text


def read_segment(role: str, spelling: str) -> str:
    """The text of a segment that is one plain name."""
    return check(role, decode(spelling))


def check_number(role: str, number: int) -> int:
    """The number, if it fits the 63 bits that every id and counter has."""
    if not 0 <= number <= MAX_NUMBER:
        raise InvalidName(f"{role} {show(str(number))} is outside 0..{MAX_NUMBER}")
    return number


def read_number(role: str, text: str) -> int:
    """The value of a decimal number in its only spelling."""
    if not _NUMBER.fullmatch(text):
        raise InvalidName(f"{role} {show(text)} is not a decimal number without sign or leading zeros")
    return check_number(role, int(text))


def bounded(spelling: str, limit: int) -> str:
    """The spelling itself, or when it is longer than `limit` its beginning and the digest of the whole.

    File systems, object stores and HTTP headers bound what a step or task name does not. `=` marks the
    digest: it never stands in a spelling, so a shortened one equals no other.
    """
    if len(spelling) <= limit:
        return spelling
    from hashlib import sha256  # rare, and OpenSSL is slow to load

    return f"{spelling[: limit - _DIGEST_CHARS - 1]}={sha256(spelling.encode()).hexdigest()}"
