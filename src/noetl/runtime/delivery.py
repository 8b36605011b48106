"""A delivery: histories of executions that came from elsewhere, examined before anything of them is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from noetl.archive.buffer import EVENTS, METADATA, PAYLOADS, FileDigest, Metadata, check_files, digest_of, read_metadata
from noetl.errors import IntegrityMismatch, InvalidInput, NoetlError
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope, PayloadRef
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import UpcasterRegistry
from noetl.runtime.restamp import Restamper
from noetl.runtime.survey import Survey

__all__ = ["Examined", "Owner", "Part", "buffer_part", "events_part", "examine", "owner_of"]

_MOST_LISTED = 256 << 20
Placed = Iterator[tuple[str, Envelope]]


class Owner(NamedTuple):
    """Whose an execution is."""

    tenant_id: str
    organization_id: str

    def __str__(self) -> str:
        return f"tenant '{self.tenant_id}', organisation '{self.organization_id}'"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the events of a delivery, which can be read again and again, and what came with them."""

    name: str
    read: Callable[[], Placed]
    payloads: Mapping[str, Path] = {}
    metadata: Metadata | None = None


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What a delivery holds, once every event and every file in it has been checked.

    `heads` is where its streams end; `written` is where they end the way they will be written, under the
    tenant that takes them. They differ only for a delivery that is taken over from another tenant.
    """

    events: int
    owner: Owner
    executions: tuple[int, ...]
    heads: Mapping[Stream, StreamHead]
    written: Mapping[Stream, StreamHead]
    references: Mapping[str, tuple[int, PayloadRef]]
    payloads: Mapping[str, Path]

    @property
    def missing(self) -> list[tuple[int, PayloadRef]]:
        """Payloads that the delivery does not bring, each with an event that refers to it."""
        return [said for said in self.references.values() if said[1].sha256 not in self.payloads]


def buffer_part(directory: Path, *, whole: bool) -> Part:
    """A buffer as part of a delivery. Its file of events is the one that was written, or IntegrityMismatch.

    With `whole` its commands and the content of its payloads are checked too; a parcel brings no commands, and the
    content of its payloads was checked as it came in.
    """
    from noetl.archive.columns import read_events  # pyarrow is heavy

    metadata = read_metadata(directory)
    if metadata.execution_id != directory.name:
        raise InvalidInput(f"{directory.name}/{METADATA} is that of execution {metadata.execution_id}")
    if EVENTS not in metadata.files:
        raise InvalidInput(f"{directory.name}/{METADATA} does not say what {EVENTS} must be")
    folder = directory / PAYLOADS
    payloads = {file.name: file for file in folder.iterdir()} if folder.is_dir() else {}
    read_name = f"{directory.name}/{EVENTS}"
    part = Part(
        name=directory.name,
        read=lambda: read_events(directory / EVENTS, read_name),
        payloads=payloads,
        metadata=metadata,
    )
    _check_written(part, directory, metadata.files if whole else {EVENTS: metadata.files[EVENTS]})
    if whole:
        _check_contents(payloads, directory.name)
    return part


def events_part(name: str, read: Callable[[], Placed]) -> Part:
    """Events alone; the payloads they refer to must be known already."""
    return Part(name=name, read=read)


def owner_of(parts: Sequence[Part]) -> Owner:
    """Whose events these are, by the first of them. Raises InvalidInput when there is none."""
    for part in parts:
        for _, event in part.read():
            return Owner(event.tenant_id, event.organization_id)
    raise InvalidInput("there are no events in this", hint="send what noetl run --offline leaves behind")


def examine(parts: Sequence[Part], registry: UpcasterRegistry, restamper: Restamper | None = None) -> Examined:
    """Read a delivery from end to end and prove it. Raises InvalidInput or IntegrityMismatch naming the first fault."""
    survey, owner = Survey(registry), owner_of(parts)
    taken = Survey(registry) if restamper is not None else survey
    for part in parts:
        before, place = survey.events, part.name
        try:
            for place, event in part.read():  # noqa: B007 - the place of the event that was read last is in the error
                _check_belongs(event, part, owner)
                survey.take(event)
                if restamper is not None:
                    taken.take(restamper.convert(event))
        except (InvalidInput, IntegrityMismatch) as error:
            if not error.message.startswith(place):
                error.message = f"{place}: {error.message}"
            raise
        if part.metadata is not None:
            _check_metadata(part.metadata, survey, owner, survey.events - before)
    payloads = {sha256: file for part in parts for sha256, file in part.payloads.items()}
    for listing in taken.listings.values():
        if listing.sha256 in payloads:
            taken.look_into(listing, _read(payloads[listing.sha256]))
    _check_payloads(payloads, taken)
    return Examined(
        events=survey.events,
        owner=owner,
        executions=tuple(dict.fromkeys(execution_of(root.stream_id) or 0 for root in survey.roots)),
        heads=_settled(survey),
        written=_settled(taken),
        references=taken.references,
        payloads=payloads,
    )


def _read(file: Path) -> bytes:
    """A list of other payloads. Raises InvalidInput for one that no stage has made."""
    size = file.stat().st_size
    if size > _MOST_LISTED:
        raise InvalidInput(f"{PAYLOADS}/{file.name} has {size} bytes, which is more than a list of outputs may have")
    return file.read_bytes()


def _check_belongs(event: Envelope, part: Part, owner: Owner) -> None:
    actual = Owner(event.tenant_id, event.organization_id)
    if actual != owner:
        raise InvalidInput(f"event {event.event_id} is of {actual}, others are of {owner}")
    if part.metadata is not None and str(event.execution_id) != part.metadata.execution_id:
        raise InvalidInput(f"event {event.event_id} is of execution {event.execution_id}, which this buffer is not")


def _check_metadata(metadata: Metadata, survey: Survey, owner: Owner, events: int) -> None:
    where = f"{metadata.execution_id}/{METADATA}"
    claimed = Owner(metadata.tenant_id, metadata.organization_id)
    if claimed != owner:
        raise IntegrityMismatch(f"{where} is of {claimed}, its events are of {owner}")
    if metadata.event_count != events:
        raise IntegrityMismatch(f"{where} counts {metadata.event_count} events, {EVENTS} has {events}")
    root = Stream(owner.tenant_id, f"execution/{metadata.execution_id}")
    if {*survey.ends(root)} != {*metadata.streams}:
        raise IntegrityMismatch(f"{where} names other stream heads than {EVENTS} gives", hint="events are missing")


def _check_payloads(payloads: Mapping[str, Path], survey: Survey) -> None:
    referred = {ref.sha256: (event_id, ref) for event_id, ref in survey.references.values()}
    for sha256, file in payloads.items():
        if sha256 not in referred:
            if sha256 not in survey.mentions:
                raise InvalidInput(f"{PAYLOADS}/{sha256} is a payload that no event refers to")
            continue
        event_id, ref = referred[sha256]
        size = file.stat().st_size
        if size != ref.bytes:
            raise IntegrityMismatch(
                f"{PAYLOADS}/{sha256} has {size} bytes, event {event_id} says that it has {ref.bytes}"
            )


def _check_contents(payloads: Mapping[str, Path], name: str) -> None:
    for sha256, file in payloads.items():
        found = digest_of(file).sha256
        if found != sha256:
            raise IntegrityMismatch(f"{name}/{PAYLOADS}/{sha256} was changed: its content has sha256 {found}")


def _check_written(part: Part, directory: Path, files: Mapping[str, FileDigest]) -> None:
    """A file that is not the one that was written is refused; if its events show where it was changed, with that."""
    try:
        check_files(directory, files)
    except IntegrityMismatch as error:
        fault = _fault_in(part)
        if fault is None:
            raise
        raise IntegrityMismatch(f"{error.message}; {fault.message}", hint=error.hint or fault.hint) from None


def _fault_in(part: Part) -> NoetlError | None:
    from noetl.kernel.upcast import default_registry

    try:
        examine([part], default_registry())
    except (InvalidInput, IntegrityMismatch) as error:
        return error
    except OSError:
        return None  # the file itself is what is missing
    return None


def _settled(survey: Survey) -> dict[Stream, StreamHead]:
    return {stream: head for stream, head in survey.heads.items() if head is not None}
