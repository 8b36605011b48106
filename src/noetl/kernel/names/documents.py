"""What a document in the catalog is called: by its path, and by the digest of what it says."""

from __future__ import annotations

import hashlib
import re

from noetl.errors import InvalidInput, InvalidName
from noetl.kernel.names.segments import show

__all__ = ["catalog_path", "document_digest"]

_PATH = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")
_MAX_PATH = 512


def catalog_path(text: str) -> str:
    """The path without its outer slashes, which do not count. Raises InvalidName."""
    path = text.strip("/")
    if not _PATH.fullmatch(path):
        raise InvalidName(
            f"{show(text)} is not a catalog path", hint="use letters, digits, '_', '-', '.', and '/' between them"
        )
    if len(path) > _MAX_PATH:
        raise InvalidName(f"catalog path {show(text)} is {len(path)} characters long, the limit is {_MAX_PATH}")
    if any(part in {".", ".."} for part in path.split("/")):
        raise InvalidName(f"{show(text)} is a relative path, not a catalog path")
    return path


def document_digest(content: str) -> str:
    """sha256 over the document's UTF-8 bytes, in hex."""
    try:
        return hashlib.sha256(content.encode()).hexdigest()
    except UnicodeEncodeError:
        raise InvalidInput("the document contains a lone surrogate, which has no UTF-8 form") from None
