"""Cursors: where the next page begins, as text that a caller hands back unread."""

from __future__ import annotations

import base64
import binascii

import msgspec

from noetl.errors import InvalidInput

__all__ = ["read_cursor", "write_cursor"]

_parts = msgspec.json.Decoder(list[str])


def write_cursor(*last: str) -> str:
    """The cursor of a page that ended with this key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(last)).decode("ascii")


def read_cursor(cursor: str, parts: int) -> list[str]:
    """The key that a page ended with. Raises InvalidInput for text that no page has given."""
    try:
        last = _parts.decode(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        last = []
    if len(last) != parts:
        raise InvalidInput(f"'{cursor[:80]}' is not a cursor", hint="pass the cursor that came with the page before")
    return last
