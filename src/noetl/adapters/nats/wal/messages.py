"""One append as a message: its events, who may have written it, and which messages it goes on from."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from noetl.adapters.nats.messages import CODEC
from noetl.archive.wire import Codec, decode_events, encode_events
from noetl.errors import InvalidInput
from noetl.kernel.event import Draft, Envelope
from noetl.kernel.names import EventSubject, shard_of
from noetl.kernel.tail import Stream

__all__ = ["ADOPTED", "PART", "PREFIX", "Message", "encode", "read", "subject_of"]

PREFIX = "noetl.wal"
PART = f"{PREFIX}.part"
"""What an append begins with that is too large for one message; it counts when the append itself does."""
ADOPTED = f"{PREFIX}.adopted"
"""Envelopes of other ledgers, of any number of roots."""

_NONCE = "Noetl-Nonce"
_PARTS = "Noetl-Parts"
_GUARDS = "Noetl-Guards"
_MAC = "Noetl-Mac"
_EVENTS = "noetl.events"
_encoder = msgspec.json.Encoder()
_guards_of = msgspec.json.Decoder(tuple[tuple[str, int], ...])


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """An append as it is stored."""

    subject: str
    data: bytes
    codec: str
    nonce: str
    parts: tuple[int, ...] = ()
    """The messages that hold its first events."""
    guards: tuple[tuple[str, int], ...] = ()
    """Streams, and the versions at which its writer has decided on it."""
    mac: str | None = None

    @property
    def adopted(self) -> bool:
        """Whether another ledger has stamped the events."""
        return self.subject == ADOPTED

    @property
    def headers(self) -> dict[str, str]:
        """As they go over the wire."""
        found = {_NONCE: self.nonce, CODEC: self.codec}
        if self.parts:
            found[_PARTS] = ",".join(map(str, self.parts))
        if self.guards:
            found[_GUARDS] = _encoder.encode(self.guards).decode()
        if self.mac is not None:
            found[_MAC] = self.mac
        return found

    def events(self) -> list[Envelope]:
        """What is in this message itself. Raises InvalidInput."""
        return decode_events(self.data, self.codec)

    def is_sealed_with(self, key: bytes) -> bool:
        """Whether somebody who has the key wrote it."""
        return self.mac is not None and hmac.compare_digest(self.mac, _mac(key, self))


def encode(
    subject: str,
    events: Sequence[Envelope],
    nonce: str,
    *,
    codec: Codec,
    key: bytes | None,
    parts: Sequence[int] = (),
    guards: Sequence[tuple[str, int]] = (),
) -> Message:
    """An append, sealed if there is a key."""
    data = encode_events(events, codec)
    plain = Message(subject=subject, data=data, codec=codec, nonce=nonce, parts=tuple(parts), guards=tuple(guards))
    return plain if key is None else msgspec.structs.replace(plain, mac=_mac(key, plain))


def read(subject: str, data: bytes | None, headers: Mapping[str, str] | None) -> Message:
    """A message of the stream. Raises InvalidInput for one that is not ours."""
    found = headers or {}
    try:
        parts = tuple(int(part) for part in found.get(_PARTS, "").split(",") if part)
        return Message(
            subject=subject,
            data=data or b"",
            codec=found[CODEC],
            nonce=found[_NONCE],
            parts=parts,
            guards=_guards_of.decode(found.get(_GUARDS, "[]")),
            mac=found.get(_MAC),
        )
    except (KeyError, ValueError, msgspec.MsgspecError):
        raise InvalidInput("the message has not the headers of an append") from None


def subject_of(fact: Draft | Envelope, root: Stream, *, sparse: bool) -> str:
    """The subject of the appends to a root: one for those that touch its dense stream, one for all others."""
    return _subject(root.tenant_id, fact.organization_id, fact.project_id, fact.execution_id, root.stream_id, sparse)


@lru_cache(8192)
def _subject(tenant: str, org: str, project: str, execution: int | None, root: str, sparse: bool) -> str:
    shard = shard_of(tenant, project, root if execution is None else execution)
    found = str(EventSubject(tenant=tenant, org=org, execution=execution, shard=shard, sparse=sparse))
    return PREFIX + found.removeprefix(_EVENTS)


def _mac(key: bytes, message: Message) -> str:
    said = (message.subject, message.nonce, message.codec, message.parts, message.guards)
    return hmac.new(key, _encoder.encode(said) + hashlib.sha256(message.data).digest(), "sha256").hexdigest()
