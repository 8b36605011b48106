"""The content of a stored object: a value on one side, bytes that may be compressed on the other."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
import zstandard

from noetl.kernel.event import Json
from noetl.payloads.resolver import TooLarge
from noetl.tools.values import BadField, decoded_json, truth

__all__ = ["decoded", "encoded", "packed", "packing_of", "unpacked"]

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"


def encoded(data: Any) -> bytes:
    """Text as it is, everything else as JSON. Raises BadField."""
    try:
        return data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadField(f"data cannot be written: {error}") from None


def decoded(content: bytes, uri: str) -> tuple[Any, Json]:
    """A value where it is JSON, else text; base64, and a word that says so, for bytes that are neither."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii"), {"encoding": "base64"}
    says_json = "json" in uri.lower().rpartition("/")[2].split(".")[1:]
    looks_json = text.lstrip()[:1] in ("{", "[")
    return (decoded_json(text) if says_json or looks_json else text), {}


def packing_of(uri: str, asked: Mapping[str, Any]) -> str:
    """`zstd`, `gzip`, or nothing. Raises BadField."""
    given = asked.get("compress")
    if given in ("zstd", "gzip"):
        return str(given)
    if not truth({"compress": given}, "compress", default=True):
        return ""
    return "gzip" if uri.endswith(".gz") else "zstd"


def packed(content: bytes, packing: str) -> bytes:
    """The bytes to store."""
    if packing == "zstd":
        return zstandard.ZstdCompressor().compress(content)
    return gzip.compress(content, mtime=0) if packing == "gzip" else content


def unpacked(stored: bytes, limit: int) -> tuple[bytes, bool]:
    """The content, and whether it was compressed. Raises TooLarge: what is small may unpack to more than fits."""
    if not stored.startswith((_ZSTD, _GZIP)):
        return stored, False
    source = io.BytesIO(stored)
    try:
        if stored.startswith(_ZSTD):
            content = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True).read(limit + 1)
        else:
            content = gzip.GzipFile(fileobj=source).read(limit + 1)
    except (zstandard.ZstdError, zlib.error, OSError, EOFError, binascii.Error):
        return stored, False  # it only begins like one
    if len(content) > limit:
        raise TooLarge(f"the content is larger than {limit} bytes")
    return content, True
