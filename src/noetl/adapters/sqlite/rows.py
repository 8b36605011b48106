"""Between table rows and envelopes. The column order is the struct's own, so nothing is named twice."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from noetl.errors import Corruption
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope, Facts, PayloadRef, Record, Recorded
from noetl.kernel.stamp import Stamped, Stream
from noetl.kernel.streams import root_of
from noetl.ports.ledger import Audited

__all__ = [
    "COLUMNS",
    "EVENT_INSERT",
    "HEAD_COLUMNS",
    "audited",
    "fetch_head",
    "fetch_last_id",
    "fetch_ledger_head",
    "head",
    "insert_row",
    "recorded",
    "undecoded",
]

# Facts first, then the free-form parts, as Record declares them; then what makes it an Envelope.
_FACTS = Facts.__struct_fields__
_STORED = (*_FACTS, "payload", "payload_ref", "meta", "envelope_checksum", "chain_hash")
COLUMNS = ", ".join(("position", *_STORED))
EVENT_INSERT = f"INSERT INTO event ({COLUMNS}) VALUES ({', '.join('?' * (len(_STORED) + 1))})"
HEAD_COLUMNS = ", ".join(StreamHead.__struct_fields__)

_FREE = 1 + len(_FACTS)
_json = msgspec.json.Decoder(dict[str, Any]).decode
_ref = msgspec.json.Decoder(PayloadRef).decode


def insert_row(position: int, stamped: Stamped) -> tuple[Any, ...]:
    """The parameters of EVENT_INSERT for one event."""
    *facts, payload, ref, meta = msgspec.structs.astuple(stamped.record)
    return (
        position,
        *facts,
        str(payload, "utf-8"),
        None if ref is UNSET else str(ref, "utf-8"),
        str(meta, "utf-8"),
        stamped.event.envelope_checksum,
        stamped.event.chain_hash,
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


@contextlib.contextmanager
def undecoded(connection: sqlite3.Connection) -> Iterator[None]:
    """Read text as bytes: what somebody has changed need not be UTF-8 any more."""
    connection.text_factory = bytes
    try:
        yield
    finally:
        connection.text_factory = str


def audited(row: Sequence[Any]) -> Audited:
    """A row of COLUMNS, read undecoded and not interpreted."""
    payload, ref, meta, checksum, chain_hash = row[_FREE:]
    try:
        record = Record(
            *map(_text, row[1:_FREE]),
            payload=Raw(payload),
            payload_ref=UNSET if ref is None else Raw(ref),
            meta=Raw(meta),
        )
        return Audited(position=row[0], record=record, envelope_checksum=_text(checksum), chain_hash=_text(chain_hash))
    except TypeError as error:
        raise Corruption(f"event {row[1]} at position {row[0]} cannot be read: {error}") from None


def _text(value: Any) -> Any:
    """Text; for bytes that are none a stand-in with a NUL, which no event may carry: it can be named, never match."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return "\0" + value.decode(errors="replace")


def head(row: Sequence[Any]) -> StreamHead:
    """A stream head from a row of HEAD_COLUMNS."""
    tenant_id, stream_id, version, event_id, count, chain_hash, ingest_time, sealed, mac = row
    return StreamHead(tenant_id, stream_id, version, event_id, count, chain_hash, ingest_time, bool(sealed), mac)


def fetch_head(connection: sqlite3.Connection, stream: Stream) -> StreamHead | None:
    """A stream's head, by its primary key."""
    row = connection.execute(
        f"SELECT {HEAD_COLUMNS} FROM stream_head WHERE tenant_id = ? AND stream_id = ?",
        (stream.tenant_id, stream.stream_id),
    ).fetchone()
    return None if row is None else head(row)


def fetch_last_id(connection: sqlite3.Connection, stream: Stream) -> int:
    """The highest event id in a stream's root and what stands below it, by primary key.

    One range does it, because '0' comes after '/'. A neighbour whose name only begins like the root's may
    fall into it; an id that follows one too many is still a good id.
    """
    root = root_of(stream.stream_id)
    (last,) = connection.execute(
        "SELECT max(event_id) FROM stream_head WHERE tenant_id = ? AND stream_id >= ? AND stream_id < ?",
        (stream.tenant_id, root, f"{root}0"),
    ).fetchone()
    return int(last or 0)


def fetch_ledger_head(connection: sqlite3.Connection) -> tuple[LedgerHead, str | None]:
    """The ledger's head, and the id of the key it is sealed with."""
    row = connection.execute("SELECT position, streams, total, chain_hash, mac, key_id FROM ledger_head").fetchone()
    if row is None:
        return LedgerHead(), None
    return LedgerHead(position=row[0], streams=row[1], total=row[2], chain_hash=row[3], mac=row[4]), row[5]
