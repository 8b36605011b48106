"""Event segments: lines of canonical JSON in zstd frames of bounded size, the same bytes for the same events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import zstandard

from noetl.archive.bundle.layout import Segment, segment_path, sidecar_path
from noetl.archive.jsonl import line_of, parse_line
from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel.event import Envelope

__all__ = ["LEVEL", "SEGMENT_BYTES", "SegmentBuilder", "compressed", "events_in", "sidecar_of"]

SEGMENT_BYTES = 8 << 20
_MOST_RAW_BYTES = 8 * SEGMENT_BYTES
LEVEL = 3  # written into every bundle: another level would give other bytes for the same history


def compressed(raw: bytes) -> bytes:
    """One zstd frame with its own checksum and length, in which nothing depends on when or where it was made."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True, threads=0)
    return compressor.compress(raw)


class SegmentBuilder:
    """Takes events, and gives a segment whenever one is full. Holds one segment in memory."""

    def __init__(self, most_bytes: int = SEGMENT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lines: list[bytes] = []
        self._size = 0
        self._ids: list[int] = []
        self._done = 0
        self._number = 0

    def add(self, events: Iterable[Envelope]) -> Iterator[tuple[Segment, bytes]]:
        """Take some events; the segments that they have filled."""
        for event in events:
            line = line_of(event)
            if self._lines and self._size + len(line) > self._most_bytes:
                yield self._cut()
            self._lines.append(line)
            self._size += len(line)
            self._ids.append(event.event_id)

    def rest(self) -> Iterator[tuple[Segment, bytes]]:
        """What is left."""
        if self._lines:
            yield self._cut()

    def _cut(self) -> tuple[Segment, bytes]:
        data = compressed(b"".join(self._lines))
        self._number += 1
        segment = Segment(
            path=segment_path(self._number),
            sha256=hashlib.sha256(data).hexdigest(),
            bytes=len(data),
            raw_bytes=self._size,
            first=self._done,
            events=len(self._lines),
            first_event_id=str(self._ids[0]),
            last_event_id=str(self._ids[-1]),
        )
        self._done += len(self._lines)
        self._lines, self._ids, self._size = [], [], 0
        return segment, data


def sidecar_of(segment: Segment) -> bytes:
    """The digest of a segment as sha256sum writes and reads it."""
    return f"{segment.sha256}  {segment.path.rpartition('/')[2]}\n".encode()


def events_in(segment: Segment, data: bytes, *, start: int = 0, stop: int | None = None) -> Iterator[Envelope]:
    """The events of a segment whose digest holds, or some of them. Raises IntegrityMismatch, InvalidInput."""
    found = hashlib.sha256(data).hexdigest()
    if found != segment.sha256:
        raise IntegrityMismatch(
            f"{segment.path} was changed: its sha256 is {found}, the manifest says {segment.sha256}"
        )
    if segment.raw_bytes > _MOST_RAW_BYTES:
        raise InvalidInput(f"{segment.path} has {segment.raw_bytes} bytes, the limit is {_MOST_RAW_BYTES}")
    try:
        if zstandard.frame_content_size(data) != segment.raw_bytes:
            raise IntegrityMismatch(f"{segment.path} has another length than the manifest says")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=segment.raw_bytes)
    except zstandard.ZstdError as error:
        raise IntegrityMismatch(f"{segment.path} is not a zstd frame: {error}") from None
    lines = raw.splitlines(keepends=True)
    if len(lines) != segment.events:
        raise IntegrityMismatch(f"{segment.path} has {len(lines)} events, the manifest says {segment.events}")
    for number, line in enumerate(lines[start:stop], start + 1):
        yield parse_line(line, f"{sidecar_path(segment.path).removesuffix('.sha256')}.jsonl:{number}")
