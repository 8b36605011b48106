"""Objects that list others: the outputs of a stage's frames, and what a stage has pinned.

An event names the list and, in some cases, nothing else does name what stands in it. Whoever moves, keeps or collects
the objects of a log must therefore look into these.

A history may be taken over by another tenant. Its events are stamped anew; an object is what it was, so the names in a
list are those of the tenant that made it. They are read as names of the tenant that has the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from noetl.errors import InvalidInput, InvalidName
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.names import PayloadName, ResultName, parse
from noetl.payloads.routes import split_route
from noetl.payloads.store import payload_key

__all__ = ["FRAMES", "PINNED", "listed_in", "listings_in", "outputs_in", "reference_to", "stored_at"]

FRAMES = "frames"
"""The form of a reference to the outputs of a stage, and the kind of the object that it leads to."""
PINNED = "pinned"
"""The kind of the object that says what a stage runs over."""

_RESULTS = "/results/"


def listings_in(event_type: str, payload: Json, payload_ref: PayloadRef | None) -> Iterator[PayloadRef]:
    """Every list that an event names."""
    if event_type == "frame.dispatched" and "slice" in payload and payload_ref is not None:
        yield payload_ref
    for said in _mappings(payload):
        if said.get("kind") == "result_ref" and said.get("form") == FRAMES:
            ref = reference_to(said)
            if ref is not None:
                yield ref


def reference_to(said: Mapping[str, Any]) -> PayloadRef | None:
    """The list that a reference of form `frames` leads to; None for what somebody made up."""
    meta = said.get("meta")
    if not isinstance(meta, Mapping):
        return None
    fields = {"uri": said.get("ref"), "sha256": meta.get("sha256"), "bytes": meta.get("bytes"), "key": said.get("key")}
    try:
        ref = msgspec.convert({**fields, "media_type": meta.get("content_type")}, PayloadRef)
        return ref if _is_stored(ref) else None
    except (msgspec.ValidationError, InvalidName):
        return None


def stored_at(ref: PayloadRef) -> str | None:
    """The key of the object that a reference leads to; None if it is kept elsewhere."""
    if ref.key is not None:
        return ref.key
    try:
        name = parse(ref.uri)
    except InvalidName:
        return None
    return payload_key(name.tenant, name.sha256) if isinstance(name, PayloadName) else None


def listed_in(data: bytes, listing: PayloadRef) -> list[PayloadRef]:
    """What a list names that is not sure to be named by an event; nothing if it is no list at all."""
    from noetl.payloads.formats import json_of

    try:
        said = json_of(data)
    except InvalidInput:
        return []
    if not isinstance(said, Mapping):
        return []
    try:
        if said.get("kind") == FRAMES:
            return [ref for ref in outputs_in(said, listing) if _is_stored(ref)]
        if said.get("kind") == PINNED:  # a result that was pinned is that of a step, whose events refer to it
            found = [source["ref"] for source in said["sources"] if source.get("ref") and not source["ref"].get("key")]
            return [ref for ref in _owned(found, listing) if _is_stored(ref)]
    except (msgspec.ValidationError, InvalidName, KeyError, TypeError, AttributeError):
        return []
    return []


def outputs_in(listed: Mapping[str, Any], listing: PayloadRef) -> list[PayloadRef]:
    """What the frames in a list have made, in their order."""
    return _owned([frame["output"] for frame in listed["frames"] if frame.get("output")], listing)


def _owned(references: list[Json], listing: PayloadRef) -> list[PayloadRef]:
    return [_own(msgspec.convert(said, PayloadRef), listing) for said in references]


def _is_stored(ref: PayloadRef) -> bool:
    """Whether a reference leads to an object of the store, by its own name."""
    name = parse(ref.uri)
    if isinstance(name, ResultName):
        return ref.key is not None and name.coordinates.owns(split_route(ref.key)[1])
    return isinstance(name, PayloadName) and name.sha256 == ref.sha256 and ref.key is None


def _own(ref: PayloadRef, listing: PayloadRef) -> PayloadRef:
    """The reference, as the tenant that has the list names what it leads to."""
    tenant, name = _tenant(parse(listing.uri)), parse(ref.uri)
    if tenant is None or _tenant(name) in (None, tenant):
        return ref
    if isinstance(name, PayloadName):
        return msgspec.structs.replace(ref, uri=str(msgspec.structs.replace(name, tenant=tenant)), ipc=None)
    assert isinstance(name, ResultName)
    uri = msgspec.structs.replace(name.coordinates, tenant=tenant).logical_uri()
    key = None
    if listing.key is not None and ref.key is not None:  # frames leave their outputs beside the list of them
        key = listing.key.partition(_RESULTS)[0] + _RESULTS + ref.key.partition(_RESULTS)[2]
    return msgspec.structs.replace(ref, uri=uri, key=key, ipc=None)


def _tenant(name: object) -> str | None:
    if isinstance(name, PayloadName):
        return name.tenant
    return name.coordinates.tenant if isinstance(name, ResultName) else None


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _mappings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _mappings(item)
