"""What workers and the server say to each other, and how it is written.

Values are written as the log writes them, so that nothing changes on the way: a float stays the same float, a whole
number of any size a whole number, and a table a table.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.ids import MAX_ID
from noetl.kernel.lazy import LazyMapping, composed
from noetl.runtime.notices import Notice
from noetl.runtime.remote.topology import Locality

__all__ = [
    "DEREGISTER", "PROTOCOL", "REGISTER", "Asked", "BeatRequest", "ClaimRequest", "CredentialRequest", "Declined",
    "Goodbye", "Hello", "PlaybookRequest", "ReadRequest", "ReportRequest", "ResultRequest", "StoreRequest", "Taken",
    "Value", "Welcome", "decode", "encode", "packed", "path_of", "unpacked",
]  # fmt: skip

T = TypeVar("T")
Number = Annotated[int, Meta(ge=0, le=MAX_ID)]

PROTOCOL = 2
"""Changed whenever a worker of the release before could not work for a server of this one."""
REGISTER = "/api/worker/pool/register"
DEREGISTER = "/api/worker/pool/deregister"


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker says who it is before it takes anything."""

    worker_id: str
    version: str
    protocol: int
    pools: tuple[str, ...]
    concurrency: Number
    labels: dict[str, str] = {}
    locality: Locality = Locality()


class Goodbye(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker goes."""

    worker_id: str


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says to that."""

    version: str
    protocol: int
    lease_seconds: float
    store: str
    """Which store the server keeps payloads in; a worker with the same one may keep there, too."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which command it is about, and by what right: the lease that a claim gave."""

    tenant_id: str
    organization_id: str
    execution_id: Number
    worker_id: str
    step: str = ""
    kind: str = ""
    token: Number = 0
    stage: Number = 0


class ClaimRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker wants a command."""

    knows: list[str] = []
    """The documents that need not be sent again."""
    labels: dict[str, str] = {}
    locality: Locality = Locality()


class Declined(msgspec.Struct, frozen=True, kw_only=True):
    """The command is not for this worker, or not yet; it is to come again after so many seconds."""

    declined: str
    seconds: float


class BeatRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker is still at it."""

    is_first: bool = False
    prints: list[Notice] = []
    """What its tasks have printed since the last time."""


class ReportRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of a command: one of the two."""

    report: Json | None = None
    suspension: Json | None = None
    place: Json = {}
    """Where it was run, and why there."""
    prints: list[Notice] = []


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a report was still awaited."""

    taken: bool


class ResultRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole result of a step that the command refers to."""

    of_step: str
    reference: Json


class CredentialRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A credential that the command uses."""

    command_id: Number
    alias: str


class PlaybookRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A playbook that the command calls."""

    path: str
    version: Any = None


class ReadRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept under a `noetl://` address."""

    uri: str


class StoreRequest(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes to be kept under a `noetl://` address."""

    uri: str
    data: bytes


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was asked for: a value, or bytes."""

    value: Json | None = None
    data: bytes | None = None


def path_of(command_id: int, what: str) -> str:
    """Where a worker asks about a command."""
    return f"/api/commands/{command_id}/{what}"


def encode(said: msgspec.Struct) -> bytes:
    """As it is sent. Raises NotCanonical for a value that is no JSON."""
    return canonical.encode(msgspec.to_builtins(said))


def decode(data: bytes, kind: type[T]) -> T:
    """What was sent. Raises InvalidInput."""
    try:
        return msgspec.convert(canonical.decode(data), kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the body is not valid: {error}") from None


def packed(value: Json) -> Json:
    """A mapping as JSON can hold it; tables in it stay tables for whoever unpacks it."""
    if not isinstance(composed(value), LazyMapping):
        return value
    from noetl.payloads.tables import pack

    return pack(value)


def unpacked(value: Json) -> Json:
    """What was packed."""
    from noetl.payloads.tables import unpack

    return unpack(value)
