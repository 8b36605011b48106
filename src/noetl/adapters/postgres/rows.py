"""Between table rows and envelopes. The column order is the struct's own, so nothing is named twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from noetl.errors import Corruption
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope, Facts, PayloadRef, Record, Recorded
from noetl.kernel.stamp import Stamped
from noetl.ports.ledger import Audited

__all__ = ["COLUMNS", "EVENT_COPY", "HEAD_COLUMNS", "STORED", "audited", "head", "insert_row", "ledger_head",
           "recorded"]  # fmt: skip

# Facts first, then the free-form parts, as Record declares them; then what makes it an Envelope.
_FACTS = Facts.__struct_fields__
STORED = ("position", *_FACTS, "payload", "payload_ref", "meta", "envelope_checksum", "chain_hash")
COLUMNS = ", ".join(STORED)
EVENT_COPY = f"COPY event_log ({COLUMNS}) FROM STDIN"
HEAD_COLUMNS = ", ".join(StreamHead.__struct_fields__)

_FREE = 1 + len(_FACTS)
_json = msgspec.json.Decoder(dict[str, Any]).decode
_ref = msgspec.json.Decoder(PayloadRef).decode


def insert_row(position: int, stamped: Stamped) -> tuple[Any, ...]:
    """One event as a row of COLUMNS."""
    record, event = stamped.record, stamped.event
    ref = record.payload_ref
    return (
        position,
        *stamped.facts,
        str(record.payload, "utf-8"),
        None if ref is UNSET else str(ref, "utf-8"),
        str(record.meta, "utf-8"),
        event.envelope_checksum,
        event.chain_hash,
    )


def recorded(row: Sequence[Any]) -> Recorded:
    """An envelope from a row of COLUMNS. A row that is not one is corruption, and is named."""
    payload, ref, meta, checksum, chain_hash = row[_FREE:]
    try:
        event = Envelope(
            *row[1:_FREE],
            payload=_json(payload),
            payload_ref=None if ref is None else _ref(ref),
            meta=_json(meta),
            envelope_checksum=checksum,
            chain_hash=chain_hash,
        )
    except (msgspec.MsgspecError, TypeError) as error:
        raise Corruption(
            f"event {row[1]} at position {row[0]} cannot be read: {error}", hint="run noetl verify --all"
        ) from None
    return Recorded(row[0], event)


def audited(row: Sequence[Any]) -> Audited:
    """A row of COLUMNS, not interpreted."""
    payload, ref, meta, checksum, chain_hash = row[_FREE:]
    record = Record(
        *row[1:_FREE],
        payload=Raw(payload.encode()),
        payload_ref=UNSET if ref is None else Raw(ref.encode()),
        meta=Raw(meta.encode()),
    )
    return Audited(position=row[0], record=record, envelope_checksum=checksum, chain_hash=chain_hash)


def head(row: Sequence[Any]) -> StreamHead:
    """A stream head from a row of HEAD_COLUMNS."""
    return StreamHead(*row)


def ledger_head(row: Sequence[Any]) -> LedgerHead:
    """The ledger's head from position, streams, total, chain_hash and mac."""
    position, streams, total, chain_hash, mac = row
    return LedgerHead(position=position, streams=streams, total=total, chain_hash=chain_hash, mac=mac)
