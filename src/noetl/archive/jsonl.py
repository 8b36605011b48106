"""A log as JSON lines: one envelope a line, in canonical form, its two hashes included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Envelope, Record, record_of

__all__ = ["JsonlWriter", "line_of", "line_of_stored", "parse_line", "read_jsonl"]


_envelope = msgspec.json.Decoder(Envelope).decode


class _Line(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    envelope_checksum: str
    chain_hash: str | None = None


def line_of(event: Envelope) -> bytes:
    """The canonical line of an event. Integers stay integers, so the bytes are what the checksum was taken over."""
    *facts, payload, ref, meta = msgspec.structs.astuple(record_of(event))
    line = _Line(
        *facts,
        payload=payload,
        payload_ref=ref,
        meta=meta,
        envelope_checksum=event.envelope_checksum,
        chain_hash=event.chain_hash,
    )
    return line.body() + b"\n"


def line_of_stored(
    facts: Iterable[Any], payload: str, payload_ref: str | None, meta: str, checksum: str, chain_hash: str | None
) -> bytes:
    """The same line, without its end, from the texts that a ledger has stored: nothing in them is interpreted.

    `facts` are the plain fields in the order of `Facts`.
    """
    return _Line(
        *facts,
        payload=msgspec.Raw(payload),
        payload_ref=msgspec.UNSET if payload_ref is None else msgspec.Raw(payload_ref),
        meta=msgspec.Raw(meta),
        envelope_checksum=checksum,
        chain_hash=chain_hash,
    ).body()


class JsonlWriter:
    """Writes events to a file, line by line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, events: Iterable[Envelope]) -> None:
        """Add events."""
        self._file.writelines(map(line_of, events))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def read_jsonl(path: Path) -> Iterator[tuple[str, Envelope]]:
    """The events of a file, one at a time, each with its place. Raises InvalidInput naming the line."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                place = f"{path}:{number}"
                yield place, parse_line(line, place)


def parse_line(line: bytes, where: str) -> Envelope:
    """The event of a line: at full speed in the form we write, else read strictly, or refused with a reason."""
    with contextlib.suppress(msgspec.MsgspecError, InvalidInput):
        event = _envelope(line)
        if line_of(event) == line:
            return event
    return _parse_strictly(line, where)


def _parse_strictly(line: bytes, where: str) -> Envelope:
    try:
        value: Any = canonical.decode(line.rstrip(b"\r\n"))
    except canonical.NotCanonical as error:
        raise InvalidInput(f"{where}: {error.message}", hint="a log has one JSON object per line") from None
    if isinstance(value, dict) and "envelope_checksum" not in value:
        raise InvalidInput(
            f"{where}: field 'envelope_checksum' is missing", hint="only logs written by noetl export can be imported"
        )
    try:
        return msgspec.convert(value, Envelope, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{where}: not an event: {error}") from None
