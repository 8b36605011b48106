"""Which payloads and results an event refers to, wherever in it the references stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from noetl.data.stage.listing import listings_in
from noetl.errors import InvalidEvent, InvalidName
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.names import PayloadName, ResultName, parse
from noetl.payloads.routes import routed, split_route
from noetl.runtime.externalize import REFERENCE, VALUES
from noetl.runtime.storage import payload_ref_of

__all__ = ["document_of", "listings_of", "mentions_of", "object_of", "references_of", "with_references"]

Name = PayloadName | ResultName
RootOf = Callable[[int], int | None]

_SCHEME = "noetl://"


def references_of(event: Envelope) -> Iterator[PayloadRef]:
    """Every object of the store that the event cannot be understood without.

    Raises InvalidEvent for a reference that cannot be read.
    """
    if event.payload_ref is not None:
        yield from _in_store(event.payload_ref)
    document = document_of(event)
    if document is not None:
        yield document
    for group in VALUES:
        for value in _values(event.payload.get(group)):
            yield from _in_store(_read(event, f"payload.{group}", value))
    said = _result_reference(event.payload)
    if said is not None:
        try:
            ref = payload_ref_of(said)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            reason = f"not a reference: {error}"
            raise InvalidEvent("payload.result.reference", reason, event_id=event.event_id) from None
        yield from _in_store(ref)
    for listing in listings_of(event):
        yield from _in_store(listing)


def listings_of(event: Envelope) -> Iterator[PayloadRef]:
    """Every object of the event's own tenant that the event names and that names others in turn."""
    for ref in listings_in(event.event_type, event.payload, event.payload_ref):
        name = _name(ref.uri)
        if name is not None and _tenant_of(name) == event.tenant_id:
            yield ref


def object_of(ref: PayloadRef) -> str:
    """What tells the objects of one tenant apart: results have a key of their own, all else is its digest."""
    return ref.key or ref.sha256


def document_of(event: Envelope) -> PayloadRef | None:
    """The text of the playbook, where an event says which one it is and how long."""
    said = event.payload.get("document")
    if not isinstance(said, dict) or not isinstance(said.get("bytes"), int) or "sha256" not in said:
        return None
    name = PayloadName(tenant=event.tenant_id, project=event.project_id, sha256=said["sha256"])
    return PayloadRef(uri=str(name), sha256=name.sha256, media_type="application/yaml", bytes=said["bytes"])


def mentions_of(event: Envelope) -> Iterator[PayloadName]:
    """Every payload of the event's own tenant that is named anywhere in it: references, and what users put there.

    An artifact, for one, is known to the log by the address in its task's result only. That it exists is its
    users' affair.
    """
    for text in _texts(event.payload):
        name = _payload_name(text)
        if name is not None and name.tenant == event.tenant_id:
            yield name


def with_references(event: Envelope, tenant: str, root_of: RootOf = lambda _: None) -> Envelope:
    """The same event with every payload and result of its tenant that it names under another tenant's name.

    `root_of` knows the root of an execution's family, which decides where its results are.
    """

    def renamed(text: str) -> str:
        name = _name(text)
        if name is None or _tenant_of(name) != event.tenant_id:
            return text
        if isinstance(name, PayloadName):
            return str(msgspec.structs.replace(name, tenant=tenant))
        return msgspec.structs.replace(name.coordinates, tenant=tenant).logical_uri()

    def key_renamed(uri: str, key: str) -> str:
        name = _name(uri)
        if not isinstance(name, ResultName) or _tenant_of(name) != event.tenant_id:
            return key
        route, own = split_route(key)
        place = msgspec.structs.replace(name.coordinates, tenant=tenant)
        beside = place.key_beside(own, root_of(place.execution_id))
        return beside if route is None else routed(route, beside)

    ref = event.payload_ref
    if ref is not None:
        key = None if ref.key is None else key_renamed(ref.uri, ref.key)
        ref = msgspec.structs.replace(ref, uri=renamed(ref.uri), key=key)
    return msgspec.structs.replace(event, payload=_renamed(event.payload, renamed, key_renamed), payload_ref=ref)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _renamed(value: Any, renamed: Callable[[str], str], key_renamed: Callable[[str, str], str]) -> Any:
    if isinstance(value, str):
        return renamed(value)
    if isinstance(value, dict):
        moved = {name: _renamed(item, renamed, key_renamed) for name, item in value.items()}
        if value.get("kind") == "result_ref" and isinstance(value.get("key"), str):
            moved["key"] = key_renamed(str(value.get("uri")), value["key"])
        return moved
    return [_renamed(item, renamed, key_renamed) for item in value] if isinstance(value, list) else value


def _result_reference(payload: Json) -> Json | None:
    result = payload.get("result")
    said = result.get("reference") if isinstance(result, dict) else None
    return said if isinstance(said, dict) and _name(said.get("uri")) is not None else None


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if value.keys() == {REFERENCE}:
            yield value[REFERENCE]
        else:
            for item in value.values():
                yield from _values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item)


def _read(event: Envelope, field: str, value: Any) -> PayloadRef:
    try:
        return msgspec.convert(value, PayloadRef)
    except msgspec.ValidationError as error:
        raise InvalidEvent(field, f"not a reference: {error}", event_id=event.event_id) from None


def _in_store(ref: PayloadRef) -> Iterator[PayloadRef]:
    name = _name(ref.uri)
    if isinstance(name, PayloadName) or (name is not None and ref.key is not None):
        yield ref


def _payload_name(uri: Any) -> PayloadName | None:
    name = _name(uri)
    return name if isinstance(name, PayloadName) else None


def _name(uri: Any) -> Name | None:
    """The payload or result that a URI names, or None for one that is kept elsewhere."""
    if not isinstance(uri, str) or not uri.startswith(_SCHEME):
        return None  # of the many texts of an event, few are names
    try:
        name = parse(uri)
    except InvalidName:
        return None
    return name if isinstance(name, PayloadName | ResultName) else None


def _tenant_of(name: Name) -> str:
    return name.tenant if isinstance(name, PayloadName) else name.coordinates.tenant
