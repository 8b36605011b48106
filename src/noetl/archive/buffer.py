"""A local buffer: one execution in a directory of its own, to be looked at, kept, and delivered to a server.

    events.feather     every event, in the columns people ask for, with the exact envelope beside them
    commands.feather   what became of every command
    metadata.json      which execution this is, how it ended, where its streams end, what the files must hash to
    payloads/<sha256>  every object the events refer to, the playbook's text among them

A buffer appears whole or not at all: it is written aside, brought to the disk, and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound, Unavailable
from noetl.payloads.blocking import storage_errors
from noetl.payloads.directories import sync, sync_tree

__all__ = [
    "COMMANDS",
    "EVENTS",
    "METADATA",
    "PAYLOADS",
    "FileDigest",
    "Metadata",
    "StreamEnd",
    "check_files",
    "digest_of",
    "drafted",
    "payload_uri",
    "read_metadata",
    "write_metadata",
]

EVENTS, COMMANDS, METADATA, PAYLOADS = "events.feather", "commands.feather", "metadata.json", "payloads"
_DRAFT = ".part"
_MOST_METADATA = 4 << 20


class FileDigest(msgspec.Struct, frozen=True, kw_only=True):
    """What a file must be, to the byte."""

    sha256: str
    bytes: int


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream of the execution ends."""

    stream_id: str
    version: int
    count: int
    chain_hash: str


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What a buffer says of itself. Ids are decimal text. `head` is that of the execution's own stream."""

    format: Literal["noetl.buffer/1"] = "noetl.buffer/1"
    execution_id: str
    tenant_id: str
    organization_id: str
    project_id: str
    root_execution_id: str | None
    parent_execution_id: str | None
    playbook_path: str | None
    document_sha256: str | None
    status: str
    started_at: str | None
    ended_at: str | None
    event_count: int
    head: StreamEnd
    below: tuple[StreamEnd, ...]
    payload_count: int
    payload_bytes: int
    files: dict[str, FileDigest]

    @property
    def streams(self) -> tuple[StreamEnd, ...]:
        """Where all streams of the execution end, its own first."""
        return (self.head, *self.below)


def payload_uri(sha256: str) -> str:
    """How a buffer names one of its own payloads."""
    return f"local://{PAYLOADS}/{sha256}"


def read_metadata(directory: Path) -> Metadata:
    """What a buffer says of itself. Raises NotFound, InvalidInput."""
    file = directory / METADATA
    try:
        with file.open("rb") as source:
            text = source.read(_MOST_METADATA)
    except FileNotFoundError:
        raise NotFound(f"there is no {METADATA} in {directory.name}") from None
    except OSError as error:
        raise Unavailable(f"cannot read {file}: {error.strerror}") from None
    try:
        return msgspec.json.decode(text, type=Metadata)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{directory.name}/{METADATA} is not what a buffer has: {error}") from None


def write_metadata(directory: Path, metadata: Metadata) -> None:
    """Write it, for people as much as for programs."""
    file = directory / METADATA
    with storage_errors(file):
        file.write_bytes(msgspec.json.format(msgspec.json.encode(metadata), indent=2) + b"\n")


def digest_of(file: Path) -> FileDigest:
    """What a file is, to the byte."""
    with file.open("rb") as source:
        sha256 = hashlib.file_digest(source, "sha256").hexdigest()
        return FileDigest(sha256=sha256, bytes=source.tell())


def check_files(directory: Path, files: Mapping[str, FileDigest]) -> None:
    """Raise IntegrityMismatch for the first file that is gone or is not the one that was written."""
    for name, expected in files.items():
        if name not in (EVENTS, COMMANDS):
            raise InvalidInput(f"{directory.name}/{METADATA} names a file '{name}', which no buffer has")
        try:
            found = digest_of(directory / name)
        except FileNotFoundError:
            raise IntegrityMismatch(f"{directory.name}/{name} is missing") from None
        if found != expected:
            raise IntegrityMismatch(
                f"{directory.name}/{name} was changed: its sha256 is {found.sha256}, {METADATA} says {expected.sha256}"
            )


@contextlib.contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """A directory to fill, which becomes `target` when the block ends well and vanishes when it does not.

    A buffer that is there already is replaced; in between there is a moment with neither, never with half
    of one. What writers that were killed have left of this target goes, too: the caller holds its lock.
    """
    place = target.parent
    with storage_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob(f".{target.name}.*{_DRAFT}"):
            shutil.rmtree(left, ignore_errors=True)
        draft = place / f".{target.name}.{secrets.token_hex(4)}{_DRAFT}"
        (draft / PAYLOADS).mkdir(parents=True)
    try:
        yield draft
        with storage_errors(target):
            sync_tree(draft)
            _replace(target, draft)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace(target: Path, draft: Path) -> None:
    former = draft.with_name(f".{target.name}.former{_DRAFT}")
    with contextlib.suppress(FileNotFoundError):
        target.rename(former)
    draft.rename(target)
    sync(target.parent)
    shutil.rmtree(former, ignore_errors=True)
