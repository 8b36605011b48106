"""What an object's key may look like, the same for every store.

A key must be usable as a path, as a bucket key and in a URL, so that a deployment can change its store
without renaming anything. A store that accepted more than the others would hide the error until then.
"""

from __future__ import annotations

import re

from noetl.errors import InvalidInput, InvalidName

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_SEGMENT_BYTES",
    "RESERVED_SEGMENT",
    "check_folder",
    "check_key",
    "check_prefix",
    "check_range",
]

MAX_KEY_BYTES = 1024  # the limit of S3, the smallest of the stores
MAX_SEGMENT_BYTES = 255  # the limit of a name on ext4, XFS, APFS and NTFS
RESERVED_SEGMENT = ".tmp"  # where a filesystem keeps its unfinished writes
_SHOWN = 80
_CONTROL = re.compile("[\\x00-\\x1f\\x7f]")


def check_key(key: str) -> str:
    """The key itself, or InvalidName that says which rule it breaks."""
    if not key:
        raise InvalidName("an object key may not be empty")
    _check_text(key)
    _check_segments(key, key.split("/"))
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself, or InvalidName when no key could begin with it.

    Its last segment may be the beginning of a name, so only the segments before it are judged.
    """
    _check_text(prefix)
    _check_segments(prefix, prefix.split("/")[:-1])
    return prefix


def check_folder(folder: str) -> str:
    """The folder itself, '' or a prefix with '/' at its end, or InvalidName."""
    if folder and not folder.endswith("/"):
        raise _invalid(folder, "is no folder", "end it with '/'")
    return check_prefix(folder)


def check_range(start: int, length: int | None) -> None:
    """Refuse a range that could only be meant as an index from the end."""
    if start < 0 or (length is not None and length < 0):
        raise InvalidInput(f"a range starts at 0 or later and has no negative length, not {start} and {length}")


def _check_text(key: str) -> None:
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        raise _invalid(key, "has a lone surrogate") from None
    if len(encoded) > MAX_KEY_BYTES:
        raise _invalid(key, f"has {len(encoded)} bytes, at most {MAX_KEY_BYTES} are allowed")
    if _CONTROL.search(key) is not None:
        raise _invalid(key, "has a NUL or another control character")


def _check_segments(key: str, segments: list[str]) -> None:
    for segment in segments:
        if not segment:
            raise _invalid(key, "has an empty segment", "write it without a leading, trailing or double '/'")
        if segment in (".", ".."):
            raise _invalid(key, f"has the segment '{segment}'", "a key never leaves the store's root")
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            raise _invalid(key, f"has a segment of more than {MAX_SEGMENT_BYTES} bytes")
    if segments and segments[0].casefold() == RESERVED_SEGMENT:
        raise _invalid(key, f"begins with '{RESERVED_SEGMENT}', which is kept for unfinished writes")


def _invalid(key: str, reason: str, hint: str | None = None) -> InvalidName:
    shown = ascii(key if len(key) <= _SHOWN else key[:_SHOWN] + "...")
    return InvalidName(f"object key {shown} {reason}", hint=hint)
