"""The ways a secret is written by those who pass it on: encoded, escaped, quoted, or one line of it."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

__all__ = ["SHORTEST", "parts_of", "spellings_of", "whole_spellings_of"]

SHORTEST = 4
"""A shorter text is in everything; hiding it would hide everything."""

_SHORTEST_LINE = 16
_SECRET_WORDS = ("secret", "password", "passwd", "token", "private", "credential", "api_key", "apikey")

_KEYWORD = re.compile(r"(?:password|passwd|pwd)=([^\s;&]{4,})", re.IGNORECASE)


def parts_of(secret: str) -> Iterator[str]:
    """The secret, and what in it is a secret of its own: lines of a key, the password of an address, fields of JSON."""
    yield secret
    if "\n" in secret:
        yield from (
            line.strip()
            for line in secret.splitlines()
            if len(line.strip()) >= _SHORTEST_LINE and not line.startswith("-----")
        )
    if "://" in secret and "@" in secret:
        yield from _password(secret)
    yield from _KEYWORD.findall(secret)
    if secret.lstrip().startswith("{"):
        yield from _fields(secret)


def spellings_of(secret: str) -> set[str]:
    """Every text that gives the secret away, as far as we know the ways."""
    found = {spell(secret) for spell in _SPELLINGS}
    found |= {json.dumps(spelling)[1:-1] for spelling in (secret, json.dumps(secret)[1:-1])}  # JSON inside JSON
    found |= set(_cores(secret.encode(errors="surrogatepass")))
    return {spelling for spelling in found if len(spelling) >= SHORTEST}


def whole_spellings_of(secret: str) -> tuple[str, ...]:
    """The spellings that stand for the secret as a whole, so that a name can take their place."""
    data = secret.encode(errors="surrogatepass")
    padded = (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode())
    return (secret, *padded, *(text.rstrip("=") for text in padded))


def _cores(data: bytes) -> Iterator[str]:
    """What base64 makes of the bytes at each of the three places they can have in a longer text.

    Characters that also carry bits of a neighbour are left out: `user:secret` in a header has this in it too.
    """
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + data).decode()
        core = encoded[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _password(address: str) -> Iterator[str]:
    try:
        password = urlsplit(address).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)


def _fields(text: str) -> Iterator[str]:
    """The values of a JSON document, such as a service account, whose names say that they are secret."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from _leaves(document, named=False)


def _leaves(value: Any, *, named: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, named=named or any(word in key.lower() for word in _SECRET_WORDS))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, named=named)
    elif isinstance(value, str) and named and len(value) >= SHORTEST:
        yield from parts_of(value)


def _shell_quoted(text: str) -> str:
    return text.replace("'", "'\"'\"'")


def _quoted_in_small(text: str) -> str:
    """Percent signs with small digits, which are as good as large ones."""
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(text, safe="", errors="replace"))


_SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: quote(text, safe="", errors="replace"),
    lambda text: quote(text, errors="replace"),
    _quoted_in_small,
    lambda text: quote_plus(text, errors="replace"),
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    lambda text: repr(text)[1:-1],
    html.escape,
    lambda text: text.replace("'", "''"),
    _shell_quoted,
    lambda text: text.encode(errors="surrogatepass").hex(),
    lambda text: text.encode(errors="surrogatepass").hex().upper(),
)
