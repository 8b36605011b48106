"""What a name can name: one struct for each form, and the reader that tells them apart.

| form           | text                                                                          |
|----------------|-------------------------------------------------------------------------------|
| resource       | `noetl://<tenant>/<project>/<kind>/<path>@<version>`; the version is optional  |
| result         | `noetl://<tenant>/<project>/results/<execution>/...`, see `coordinates`        |
| payload        | `noetl://<tenant>/<project>/payloads/sha256/<hex>`                             |
| infrastructure | `noetl://tenant/<t>/org/<o>/region/<r>/zone/<z>/cluster/<c>/node/<n>/worker/<w>` |
| older result   | `noetl://execution/<execution>/result/<step>/<ref>`                            |
| URN            | `urn:noetl:<tenant>:<project>:<namespace>:<type>:<name>:<version>`             |

A text has one reading: under `results` a decimal first segment is an execution id, under `payloads` a
first segment `sha256` is a digest, and neither can be built as a plain resource. A URN is a second
spelling of a resource whose path has two segments and which has a version; nothing else has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from noetl.errors import InvalidName
from noetl.kernel.names.address import (
    Address,
    check_length,
    check_tenant,
    check_text,
    join,
    reading,
    split,
)
from noetl.kernel.names.coordinates import RESULTS, ResultCoordinates, read_coordinates
from noetl.kernel.names.segments import check, decode, encode, read_segment, show

__all__ = [
    "InfrastructureName",
    "LegacyResult",
    "Name",
    "PayloadName",
    "ResourceName",
    "ResultName",
    "from_urn",
    "parse",
    "to_urn",
]

PAYLOADS = "payloads"
URN_PREFIX = "urn:noetl:"

_RESULT, _PAYLOAD = "a result's", "a payload's"
_RESOURCE_FORM = "noetl://<tenant>/<project>/<kind>/<path>@<version>"
_PAYLOAD_FORM = "noetl://<tenant>/<project>/payloads/sha256/<hex>"
_LEGACY_FORM = "noetl://execution/<execution>/result/<step>/<ref>"
_URN_FORM = "urn:noetl:<tenant>:<project>:<namespace>:<type>:<name>:<version>"
_URN_ROLES = ("tenant", "project", "namespace", "type", "name", "version")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DECIMAL = re.compile(r"[0-9]+")
_TOPOLOGY = ("tenant", "org", "region", "zone", "cluster", "node", "process", "worker")
_OLDER_TOPOLOGY = ("tenant", "org", "cluster", "region", "zone", "node", "process", "worker")


class ResourceName(msgspec.Struct, frozen=True, kw_only=True):
    """Anything a project owns: a dataset, a model, an archive, a table."""

    tenant: str
    project: str
    kind: str
    path: tuple[str, ...]
    version: str | None = None

    def __post_init__(self) -> None:
        check_tenant(self.tenant)
        check("project", self.project)
        check("kind", self.kind)
        if not self.path:
            raise InvalidName(f"a resource of kind {show(self.kind)} needs a path", hint=_RESOURCE_FORM)
        for segment in self.path:
            check("path segment", segment)
        if self.version is not None:
            check("version", self.version)
        if owner := _owner_of(self.kind, self.path[0]):
            raise InvalidName(f"{show(f'{self.kind}/{self.path[0]}')} begins {owner} name, not a resource's")
        check_length(str(self))

    def __str__(self) -> str:
        return join(map(encode, (self.tenant, self.project, self.kind, *self.path)), self.version)


class ResultName(msgspec.Struct, frozen=True):
    """The result of a step, an iteration, a frame, a row or one of their tasks."""

    coordinates: ResultCoordinates

    def __post_init__(self) -> None:
        self.coordinates.logical_uri()

    def __str__(self) -> str:
        return self.coordinates.logical_uri()


class PayloadName(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable bytes, named by the digest of their content."""

    tenant: str
    project: str
    sha256: str

    def __post_init__(self) -> None:
        check_tenant(self.tenant)
        check("project", self.project)
        if not _SHA256.fullmatch(self.sha256):
            raise InvalidName(f"{show(self.sha256)} is not a sha256 digest", hint="64 lower-case hex digits")
        check_length(str(self))

    def __str__(self) -> str:
        return join((encode(self.tenant), encode(self.project), PAYLOADS, "sha256", self.sha256))


class InfrastructureName(msgspec.Struct, frozen=True, kw_only=True):
    """Who did it, and where: a tenant, narrowed by whatever else is known, from coarse to fine.

    `process` is kept for locators that were written with one; new names go from node to worker.
    """

    tenant: str
    org: str | None = None
    region: str | None = None
    zone: str | None = None
    cluster: str | None = None
    node: str | None = None
    process: str | None = None
    worker: str | None = None

    def __post_init__(self) -> None:
        check_tenant(self.tenant)
        for key, value in self._parts():
            check(key, value)
        check_length(str(self))

    def __str__(self) -> str:
        return join(part for key, value in self._parts() for part in (key, encode(value)))

    def _parts(self) -> list[tuple[str, str]]:
        return [(key, value) for key in _TOPOLOGY if (value := getattr(self, key)) is not None]


class LegacyResult(msgspec.Struct, frozen=True):
    """A result reference of the older form. Its store knows it by its text, so the text is kept as it was read.

    It is built from a text that already exists and never from parts: new results have a ResultName.
    """

    text: str

    def __post_init__(self) -> None:
        _read_legacy(split(self.text))

    def __str__(self) -> str:
        return self.text

    @property
    def execution_id(self) -> str:
        """The execution, as the text has it: older ids need not be numbers."""
        return _read_legacy(split(self.text))[0]

    @property
    def step(self) -> str:
        """The step that made the result."""
        return _read_legacy(split(self.text))[1]

    @property
    def ref(self) -> str:
        """The older store's own reference."""
        return _read_legacy(split(self.text))[2]


Name: TypeAlias = ResourceName | ResultName | PayloadName | InfrastructureName | LegacyResult


def parse(text: str) -> Name:
    """The name behind a locator or a URN. What it prints is the canonical spelling of what was read."""
    with reading(text):
        return _read_urn(text) if text.startswith("urn:") else _read(split(text), text)


def _read(address: Address, text: str) -> Name:
    first = read_segment("tenant", address.segments[0])
    if first == "tenant":
        return _read_infrastructure(address)
    if first == "execution":
        return LegacyResult(text)
    if len(address.segments) < 4:
        raise InvalidName("it ends before a path", hint=_RESOURCE_FORM)
    return _read_owned(first, address)


def _read_owned(tenant: str, address: Address) -> Name:
    _, project, kind, *path = address.segments
    owner = _owner_of(decode(kind), decode(path[0]))
    if owner == _RESULT:
        return ResultName(read_coordinates(address))
    if owner == _PAYLOAD:
        return _read_payload(tenant, address)
    return ResourceName(
        tenant=tenant,
        project=read_segment("project", project),
        kind=read_segment("kind", kind),
        path=tuple(read_segment("path segment", segment) for segment in path),
        version=address.version,
    )


def _owner_of(kind: str, first: str) -> str | None:
    if kind == RESULTS and _DECIMAL.fullmatch(first):
        return _RESULT
    if kind == PAYLOADS and first == "sha256":
        return _PAYLOAD
    return None


def _read_payload(tenant: str, address: Address) -> PayloadName:
    if len(address.segments) != 5 or address.version is not None:
        raise InvalidName("a payload name ends with its digest and has no version", hint=_PAYLOAD_FORM)
    _, project, _, _, digest = address.segments
    return PayloadName(tenant=tenant, project=read_segment("project", project), sha256=decode(digest))


def _read_infrastructure(address: Address) -> InfrastructureName:
    if address.version is not None:
        raise InvalidName("an infrastructure name has no version")
    texts = [read_segment("segment", segment) for segment in address.segments]
    keys, values = texts[::2], texts[1::2]
    if len(keys) != len(values):
        raise InvalidName(f"{show(keys[-1])} has no value")
    if not (_in_order(keys, _TOPOLOGY) or _in_order(keys, _OLDER_TOPOLOGY)):
        raise InvalidName(f"{show('/'.join(keys))} are not some of {'/'.join(_TOPOLOGY)}, each once, in that order")
    return InfrastructureName(**dict(zip(keys, values, strict=True)))


def _in_order(keys: Iterable[str], order: Iterable[str]) -> bool:
    rest = iter(order)
    return all(key in rest for key in keys)


def _read_legacy(address: Address) -> tuple[str, str, str]:
    texts = [read_segment("segment", segment) for segment in address.segments]
    if len(texts) < 5 or address.segments[:3:2] != ("execution", "result") or address.version is not None:
        raise InvalidName("it does not have the parts of an older result reference", hint=_LEGACY_FORM)
    return texts[1], texts[3], "/".join(texts[4:])


def to_urn(name: ResourceName) -> str:
    """The URN of a resource. One whose path has not two segments, or which has no version, has none."""
    if len(name.path) != 2:
        raise InvalidName(f"{show(str(name))} has no URN: its path has {len(name.path)} segments, not <type>/<name>")
    if name.version is None:
        raise InvalidName(f"{show(str(name))} has no URN: it has no version")
    urn = URN_PREFIX + ":".join(map(encode, (name.tenant, name.project, name.kind, *name.path, name.version)))
    check_length(urn)
    return urn


def from_urn(text: str) -> ResourceName:
    """The resource that a URN spells."""
    with reading(text):
        return _read_urn(text)


def _read_urn(text: str) -> ResourceName:
    check_text(text)
    if not text.startswith(URN_PREFIX):
        raise InvalidName(f"it does not begin with {URN_PREFIX}")
    parts = text.removeprefix(URN_PREFIX).split(":")
    if len(parts) != len(_URN_ROLES):
        raise InvalidName(f"it has {len(parts)} parts after {URN_PREFIX}, not {len(_URN_ROLES)}", hint=_URN_FORM)
    tenant, project, kind, resource_type, name, version = map(read_segment, _URN_ROLES, parts)
    return ResourceName(tenant=tenant, project=project, kind=kind, path=(resource_type, name), version=version)
