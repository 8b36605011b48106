"""Which payloads an event refers to, wherever in it the references stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from noetl.errors import InvalidEvent, InvalidName
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.names import PayloadName, parse
from noetl.runtime.externalize import REFERENCE, VALUES

__all__ = ["document_of", "mentions_of", "references_of", "with_references"]

Rename = Callable[[PayloadName], PayloadName]

_SCHEME = "noetl://"


def references_of(event: Envelope) -> Iterator[PayloadRef]:
    """Every object of the payload store that the event cannot be understood without.

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
        meta = said.get("meta") or {}
        fields = {"uri": said.get("uri"), "sha256": meta.get("sha256"), "bytes": meta.get("bytes"),
                  "media_type": meta.get("content_type")}  # fmt: skip
        yield from _in_store(_read(event, "payload.result.reference", fields))


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


def with_references(event: Envelope, rename: Rename) -> Envelope:
    """The same event with every payload of its tenant that it names under a new name."""

    def renamed(text: str) -> str:
        name = _payload_name(text)
        return text if name is None or name.tenant != event.tenant_id else str(rename(name))

    ref = event.payload_ref
    return msgspec.structs.replace(
        event,
        payload=_renamed(event.payload, renamed),
        payload_ref=None if ref is None else msgspec.structs.replace(ref, uri=renamed(ref.uri)),
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _renamed(value: Any, renamed: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return renamed(value)
    if isinstance(value, dict):
        return {name: _renamed(item, renamed) for name, item in value.items()}
    return [_renamed(item, renamed) for item in value] if isinstance(value, list) else value


def _result_reference(payload: Json) -> Json | None:
    result = payload.get("result")
    said = result.get("reference") if isinstance(result, dict) else None
    return said if isinstance(said, dict) and _payload_name(said.get("uri")) is not None else None


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
    if _payload_name(ref.uri) is not None:
        yield ref


def _payload_name(uri: Any) -> PayloadName | None:
    """The payload that a URI names, or None for one that is kept elsewhere."""
    if not isinstance(uri, str) or not uri.startswith(_SCHEME):
        return None  # of the many texts of an event, few are names
    try:
        name = parse(uri)
    except InvalidName:
        return None
    return name if isinstance(name, PayloadName) else None
