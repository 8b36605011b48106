"""The outputs of frames, a hundred bytes each.

Where the output of a frame is follows from its place, so of most outputs only the digest and a few numbers are kept.
One that is elsewhere, such as what an earlier attempt has left, is kept as it is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from noetl.kernel.event import PayloadRef

__all__ = ["Output", "PackedOutputs"]

Place = tuple[int, int, int]
_FRAME = re.compile(r"/e(\d+)\.s(\d+)\.f(\d+)/0/(\d+)(?=[@.])")
_ROW = struct.Struct("<qqqqqqqqqi32s")
_ODD = -1


class Output(msgspec.Struct, frozen=True):
    """What a committed frame has made, and where its rows stand in the order of the stage."""

    place: Place
    frame_id: int
    index: int
    attempt: int
    rows: int
    output: PayloadRef


class _Form(NamedTuple):
    """What the names of all outputs have in common."""

    uri: tuple[str, str]
    key: tuple[str, str]
    epoch: str
    media_type: str

    def name(self, parts: tuple[str, str], slot: int, index: int, attempt: int) -> str:
        head, tail = parts
        return f"{head}/e{self.epoch}.s{slot}.f{index}/0/{attempt}{tail}"

    def fits(self, one: Output) -> bool:
        ref, place = one.output, (one.place[0], one.index, one.attempt)
        return (
            ref.uri == self.name(self.uri, *place)
            and ref.key == self.name(self.key, *place)
            and ref.media_type == self.media_type
            and ref.rows is not None
        )


class PackedOutputs:
    """The outputs of a stage."""

    def __init__(self) -> None:
        self._rows = bytearray()
        self._odd: list[Output] = []
        self._form: _Form | None = None
        self._schemas: list[str | None] = []
        self.count = 0
        self.rows = 0
        """How many rows they have together."""

    def add(self, one: Output) -> None:
        """A frame has left something. That it lies in shared memory, too, will not be true for long."""
        one = msgspec.structs.replace(one, output=msgspec.structs.replace(one.output, ipc=None))
        self.count += 1
        self.rows += one.output.rows or 0
        self._form = self._form or _form_of(one)
        if self._form is None or not self._form.fits(one):
            self._pack(one, _ODD, len(self._odd))
            self._odd.append(one)
        else:
            self._pack(one, self._schema(one.output.schema_digest), one.output.bytes)

    def _pack(self, one: Output, schema: int, size: int) -> None:
        sha256 = bytes.fromhex(one.output.sha256)
        numbers = (*one.place, one.frame_id, one.index, one.attempt, one.rows, one.output.rows or 0, size)
        self._rows += _ROW.pack(*numbers, schema, sha256)

    def _schema(self, digest: str | None) -> int:
        if digest not in self._schemas:
            self._schemas.append(digest)
        return self._schemas.index(digest)

    def __iter__(self) -> Iterator[Output]:
        """All of them, in the order of slot and frame."""
        order = sorted(range(self.count), key=self._place)
        return (self._unpacked(number) for number in order)

    def _place(self, number: int) -> Place:
        found = _ROW.unpack_from(self._rows, number * _ROW.size)
        return found[0], found[1], found[2]

    def _unpacked(self, number: int) -> Output:
        slot, claim, row, frame_id, index, attempt, rows, out_rows, size, schema, sha256 = _ROW.unpack_from(
            self._rows, number * _ROW.size
        )
        if schema == _ODD:
            odd: Output = self._odd[size]
            return odd
        form = self._form
        assert form is not None, "what fits a form was packed by it"
        ref = PayloadRef(
            uri=form.name(form.uri, slot, index, attempt),
            sha256=sha256.hex(),
            media_type=form.media_type,
            bytes=size,
            rows=out_rows,
            schema_digest=self._schemas[schema],
            key=form.name(form.key, slot, index, attempt),
        )
        return Output((slot, claim, row), frame_id, index, attempt, rows, ref)


def _form_of(one: Output) -> _Form | None:
    """How the names of outputs are made, by one of them; None if it is not called by its place."""
    uri, key = _split(one.output.uri), _split(one.output.key or "")
    if uri is None or key is None:
        return None
    return _Form((uri[0], uri[2]), (key[0], key[2]), uri[1], one.output.media_type)


def _split(name: str) -> tuple[str, str, str] | None:
    places = [*_FRAME.finditer(name)]
    if not places:
        return None
    place = places[-1]  # a step may be called anything
    return name[: place.start()], place[1], name[place.end() :]
