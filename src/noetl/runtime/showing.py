"""Results as they are shown: to people, to scripts and over HTTP."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.lazy import LazyMapping, plain

__all__ = ["ShownResult", "described", "named_result", "shown"]

MOST_ELEMENTS = 200_000
"""A table with more is shown by its beginning and by where it is: as JSON it would fill the memory of whoever asks."""


class ShownResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result, or of a table that is too long for JSON where it is."""

    value: Any
    ref: str | None
    rows: int | None
    bytes: int
    sha256: str


def shown(value: Any, reference: Json | None) -> Any:
    """A result as JSON; of a long table the part that its event has kept, with `_ref` and `_store`."""
    if not isinstance(value, LazyMapping) or value.size <= MOST_ELEMENTS or reference is None:
        return plain(value)
    return {**value.head(), "_ref": reference.get("ref"), "_store": reference.get("store")}


def named_result(result: Json) -> Any:
    """The result of an event without fetching anything: one that is kept elsewhere is named."""
    reference, kept = result.get("reference"), result.get("context")
    if not isinstance(reference, dict):
        return kept
    named = {"_ref": reference.get("ref"), "_store": reference.get("store"), "_preview": reference.get("preview")}
    return {**(kept if isinstance(kept, dict) else {}), **named}


def described(value: Any, reference: Json | None) -> ShownResult:
    """A result with its length and digest: those of its JSON, or of the object where only that is named."""
    told = shown(value, reference)
    rows = value.get("rows") if isinstance(value, dict | LazyMapping) else None
    count = None if rows is None or isinstance(rows, str) or not hasattr(rows, "__len__") else len(rows)
    if isinstance(value, LazyMapping) and isinstance(told, dict) and "_ref" in told and reference is not None:
        meta = reference["meta"]
        return ShownResult(value=told, ref=told["_ref"], rows=count, bytes=meta["bytes"], sha256=meta["sha256"])
    data = canonical.encode(told)
    return ShownResult(value=told, ref=None, rows=count, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
