"""Deliveries that wait: proven and kept, so that whoever brought them need not, and written by whichever server comes.

A delivery is one object: what is to be known of it, and behind that its bytes as they came. It is kept before
`batch.accepted` says so and removed after `batch.completed` or `batch.failed`; a server that is killed anywhere in
between leaves it to the next, which writes what is not written yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from noetl.archive.jsonl import parse_line
from noetl.archive.parcel import MEDIA_TYPE, Unpacker
from noetl.errors import InvalidInput, LeaseLost, NoetlError, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.names.segments import encode
from noetl.payloads.blocking import PIECE_BYTES, in_thread, storage_errors
from noetl.runtime.delivery import Part, buffer_part, events_part
from noetl.runtime.driver import Origin
from noetl.runtime.ingest import BatchTaken, Ingest, Wanted
from noetl.runtime.process import process_name
from noetl.runtime.wiring import Embedded

__all__ = ["ARROW_FILE", "ARROW_STREAM", "JSON", "MOST_WAITING", "PARCEL", "Incoming", "NotJson", "parts_of"]

PARCEL = MEDIA_TYPE
ARROW_FILE = "application/vnd.apache.arrow.file"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
JSON = "application/json"
MOST_WAITING = 64
"""How many deliveries may wait, over all servers, before no more are taken."""
_PREFIX = "noetl/incoming/"
_LENGTH_BYTES = 8
_LEASE_SECONDS = 15.0
_LOOK_SECONDS = 10.0

_log = logging.getLogger("noetl.ingest")


class NotJson(InvalidInput):
    """Bytes that were to be JSON and are not."""


class _Events(msgspec.Struct, forbid_unknown_fields=True):
    events: list[msgspec.Raw]


class _About(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known of a delivery beside its bytes."""

    request_id: str
    kind: str
    origin: Origin
    wanted: Wanted


def parts_of(kind: str, file: Path, room: Path) -> list[Part]:
    """A file that came as this media type, as parts of a delivery; a parcel is unpacked into `room`.

    Raises InvalidInput, IntegrityMismatch, and NotJson.
    """
    if kind == PARCEL:
        return [buffer_part(folder, whole=False) for folder in _unpacked(file, room)]
    if kind == JSON:
        with storage_errors(file):
            events = list(_placed(_events_in(file.read_bytes())))
        return [events_part("events", lambda: iter(events))]
    from noetl.archive.columns import read_events, read_stream

    if kind == ARROW_FILE:
        return [events_part("events.feather", lambda: read_events(file, "events.feather"))]
    return [events_part("events", lambda: read_stream(file, "events"))]


class Incoming:
    """Keeps deliveries and works through them, here or wherever they were left."""

    def __init__(self, embedded: Embedded, ingest: Ingest) -> None:
        self._embedded = embedded
        self._objects = embedded.objects
        self._ingest = ingest
        self._owner = f"{process_name('ingest')}/{secrets.token_hex(4)}"
        self._woken = asyncio.Event()

    async def accept(self, kind: str, body: Path, room: Path, origin: Origin, wanted: Wanted) -> BatchTaken:
        """Prove a delivery and keep it; it is written later. Raises as `Ingest.take`, and Unavailable when full."""
        waiting = [info.key async for info in self._objects.list(_PREFIX)]
        if len(waiting) >= MOST_WAITING:
            raise Unavailable(f"{len(waiting)} deliveries wait already", hint="send it again later")

        async def keep(request_id: str) -> None:
            about = _About(request_id=request_id, kind=kind, origin=origin, wanted=wanted)
            await self._objects.put(_key(origin.tenant_id, request_id), _packed(about, body))

        parts = await in_thread(parts_of, kind, body, room)
        taken = await self._ingest.accept(parts, origin, wanted, keep)
        self._woken.set()
        return taken

    async def serve(self) -> None:
        """Work through what waits, for as long as this runs."""
        while True:
            self._woken.clear()
            try:
                await self.work()
            except (NoetlError, OSError) as error:
                _log.warning("deliveries that wait could not be looked at: %s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _LOOK_SECONDS)

    async def work(self) -> int:
        """Write everything that waits and that nobody else is writing; how many deliveries that were."""
        waiting = [info.key async for info in self._objects.list(_PREFIX)]
        return sum([await self._take_up(key) for key in waiting])

    async def _take_up(self, key: str) -> bool:
        lease = await self._embedded.leases.take(f"batch/{key}", self._owner, seconds=_LEASE_SECONDS)
        if lease is None:
            return False
        keeping = asyncio.create_task(self._renew(lease.name))
        try:
            return await self._write(key)
        except Unavailable as error:
            _log.warning("a delivery waits on: %s", error)
            return False
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            with contextlib.suppress(LeaseLost):
                await self._embedded.leases.release(lease)

    async def _renew(self, name: str) -> None:
        while True:
            await asyncio.sleep(_LEASE_SECONDS / 3)
            await self._embedded.leases.take(name, self._owner, seconds=_LEASE_SECONDS)

    async def _write(self, key: str) -> bool:
        if await self._objects.head(key) is None:
            return False  # written by another server, between our look and our lease
        async with self._ingest.waiting_room() as room:
            about = await self._fetched(key, room / "body")
            try:
                parts = await in_thread(parts_of, about.kind, room / "body", room)
                await self._ingest.take(parts, about.origin, about.wanted, is_waiting=True)
            except Unavailable:
                raise
            except NoetlError as error:
                _log.warning("delivery %s has failed: %s", about.request_id, error)
                await self._ingest.fail(about.origin, about.request_id, error)
        await self._objects.delete(key)
        return True

    async def _fetched(self, key: str, file: Path) -> _About:
        length = int.from_bytes(await self._objects.get(key, length=_LENGTH_BYTES), "big")
        about = msgspec.json.decode(await self._objects.get(key, start=_LENGTH_BYTES, length=length), type=_About)
        skip = _LENGTH_BYTES + length
        with storage_errors(file), file.open("xb") as sink:
            async for chunk in self._objects.stream(key):
                await in_thread(sink.write, chunk[skip:])
                skip = max(0, skip - len(chunk))
        return about


def _key(tenant_id: str, request_id: str) -> str:
    return f"{_PREFIX}tenant={encode(tenant_id)}/{request_id}"


async def _packed(about: _About, body: Path) -> AsyncIterator[bytes]:
    data = msgspec.json.encode(about)
    yield len(data).to_bytes(_LENGTH_BYTES, "big") + data
    with storage_errors(body), body.open("rb") as source:
        while chunk := await in_thread(source.read, PIECE_BYTES):
            yield chunk


def _unpacked(file: Path, room: Path) -> list[Path]:
    target = room / "parcel"
    unpacker = Unpacker(target)
    try:
        with storage_errors(file):
            target.mkdir()
            with file.open("rb") as source:
                while piece := source.read(PIECE_BYTES):
                    unpacker.feed(piece)
        return unpacker.finish()
    finally:
        unpacker.close()


def _events_in(body: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(body, type=_Events).events
    except msgspec.ValidationError as error:
        raise InvalidInput(f'the body is not {{"events": [...]}}: {error}') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(f"the body is not JSON: {error}") from None


def _placed(raw: list[msgspec.Raw]) -> Iterator[tuple[str, Envelope]]:
    for number, data in enumerate(raw):
        place = f"events[{number}]"
        yield place, parse_line(bytes(data) + b"\n", place)
