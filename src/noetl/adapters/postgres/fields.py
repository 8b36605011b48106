"""The fields of a projected row that can be looked for: its top-level texts, numbers and truth values, as JSON.

Postgres keeps no NUL in a text, and no index keeps a text of any length. So a text is written differently where it
has to be, and never so that two texts become one: a backslash is doubled, a NUL is `\\0`, and a text that is too long
is `\\#` and its digest.
"""

from __future__ import annotations

import hashlib

import msgspec

__all__ = ["fields_of", "sought"]

_LONGEST = 1024
_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode


def fields_of(row: bytes) -> bytes:
    """The fields of a row of canonical JSON, as JSON."""
    kept = []
    for name, raw in _row(row).items():
        data = bytes(raw)
        if data[0] in b"-0123456789tf":
            kept.append(b'"%s":%s' % (name.encode(), data))
        elif data[0] == 0x22:
            plain = len(data) <= _LONGEST and b"\\" not in data
            kept.append(b'"%s":%s' % (name.encode(), data if plain else sought(_text(data)).encode()))
    return b"{%s}" % b",".join(kept)


def sought(value: str | int) -> str:
    """A value in the form in which a field holds it, as JSON."""
    if isinstance(value, str):
        if len(value.encode()) > _LONGEST - 2:
            value = "\\#" + hashlib.sha256(value.encode()).hexdigest()
        elif "\\" in value or "\0" in value:
            value = value.replace("\\", "\\\\").replace("\0", "\\0")
    return msgspec.json.encode(value).decode()
