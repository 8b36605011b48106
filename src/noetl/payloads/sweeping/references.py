"""Which objects an event names, and until when that keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel.event import Record, checksum_of
from noetl.kernel.time import parse_time
from noetl.payloads.sweeping.judging import FOREVER
from noetl.payloads.sweeping.naming import names_in
from noetl.ports.ledger import Audited

__all__ = ["references_in", "sound_record"]

_EXPIRING = b'"expires_at"'
_SHORT_LIVED = "step"


def sound_record(found: Audited) -> Record:
    """The event, if it is what was written. One whose reference was damaged would give its object away.

    Raises IntegrityMismatch.
    """
    if checksum_of(found.record) != found.envelope_checksum:
        raise IntegrityMismatch(
            f"event {found.record.event_id} at position {found.position} is not what was written, "
            "so it is not known what it refers to",
            hint="run noetl verify --all; nothing is collected before the log is sound",
        )
    return found.record


def references_in(record: Record) -> dict[bytes, int]:
    """Every object that an event names, and the moment until which that keeps it."""
    payload = bytes(record.payload)
    ref = b"" if record.payload_ref is msgspec.UNSET else bytes(record.payload_ref)
    expiring: dict[bytes, int] = {}
    texts = [payload]
    if _EXPIRING in payload:
        texts = []
        for said in _parts(msgspec.json.decode(payload)):
            until = _expiry(said) if isinstance(said, dict) else None
            if until is None:
                texts.append(msgspec.json.encode(said))
            else:
                for identity in names_in(msgspec.json.encode(said)):
                    expiring[identity] = max(until, expiring.get(identity, 0))
    found = {identity: expiring.get(identity, FOREVER) for identity in names_in(ref)}
    found = {**expiring, **found}
    for text in (*texts, bytes(record.meta)):
        found.update(dict.fromkeys(names_in(text), FOREVER))
    return found


def _parts(value: Any) -> Iterator[Any]:
    """The references that expire, each as a whole, and all that stands around them."""
    if isinstance(value, dict) and _expiry(value) is None:
        for name, item in value.items():
            yield name
            yield from _parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item)
    else:
        yield value


def _expiry(said: dict[str, Any]) -> int | None:
    """When a reference to a result ends; None for one that does not, or that cannot be understood."""
    if said.get("kind") != "result_ref" or said.get("scope") != _SHORT_LIVED:
        return None
    try:
        return parse_time(said["expires_at"])
    except (KeyError, InvalidInput, AttributeError, TypeError):
        return None
