"""What a part of a document mentions: whether there is anything to find, before anybody looks where."""

from __future__ import annotations

import re

import msgspec

__all__ = ["mentions"]

_encode = msgspec.json.Encoder().encode


def mentions(part: object, pattern: re.Pattern[bytes]) -> bool:
    """Whether the text of a part of a document matches. May find too much (a name, a key), never too little.

    One call of the encoder costs a tenth of a walk through the values, and most steps mention nothing.
    """
    try:
        text = _encode(part)
    except (TypeError, ValueError):  # a key that is no text, half a surrogate
        text = ascii(msgspec.to_builtins(part)).encode()
    return pattern.search(text) is not None
