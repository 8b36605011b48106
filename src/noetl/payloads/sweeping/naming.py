"""What the key of an object says it is, and which objects a text names.

Both sides are brought to one *identity* of 32 bytes: of a payload its digest, of a result or an effect the digest of
its key from the tenant on. What comes before that is where the execution lived, which a name does not say. Reading is
generous on purpose: a digest that stands anywhere, for whatever reason, keeps the payload that it would be the name of.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from noetl.errors import InvalidName
from noetl.kernel.names import Home, ResultCoordinates
from noetl.kernel.names.segments import bounded, encode
from noetl.payloads.routes import split_route

__all__ = ["LONGEST_NAME", "Kind", "Named", "identity_of_key", "names_in", "owner_of", "read_key"]

Kind = Literal["payload", "result", "effect"]
LONGEST_NAME = 4096
"""No name is longer: what is read in pieces overlaps by as much."""

_TENANT_CHARS = 160
_DIGEST_CHARS = 64
_PAYLOAD = re.compile(r"[^/]+/([0-9a-f]{2})/([0-9a-f]{2})/([0-9a-f]{64})")
_RESULT = re.compile(
    r"noetl/env=[^/]+/region=[^/]+/cell=[^/]+/shard=[^/]+/"
    r"tenant=(?P<tenant>[^/]+)/project=[^/]+/date=[^/]+/execution=(?P<execution>[0-9]+)/results/.+/(?P<last>[^/]+)\.bin"
)
_FROM_TENANT = "/tenant="
_DIGESTS = re.compile(rb"[0-9a-f]{64,}")
_KEYS = re.compile(rb"noetl/env=[^\"\\\s]{1,2048}?/results/[^\"\\\s]{1,2048}?\.bin")
_URIS = re.compile(rb"noetl://[^\"\\\s@]{1,2048}/results/[^\"\\\s@]{1,2048}@[A-Za-z0-9._~%-]+")
_ANYWHERE = Home(env="-", region="-", cell="-")


class Named(NamedTuple):
    """An object by its key. `tenant` is as the key spells it, `execution` is None for what belongs to none."""

    kind: Kind
    identity: bytes
    tenant: str
    execution: int | None


def read_key(key: str) -> Named | None:
    """What an object is, or None for one that is not ours to judge."""
    _, key = split_route(key)
    if found := _RESULT.fullmatch(key):
        effect = found["last"] == "effect" or found["last"].startswith("effect~")
        kind: Kind = "effect" if effect else "result"
        return Named(kind, identity_of_key(key), found["tenant"], int(found["execution"]))
    found = _PAYLOAD.fullmatch(key)
    if found is None or not found[3].startswith(found[1] + found[2]):
        return None
    return Named("payload", bytes.fromhex(found[3]), key.partition("/")[0], None)


def owner_of(tenant: str) -> str:
    """A tenant as keys spell it."""
    return bounded(encode(tenant), _TENANT_CHARS)


def identity_of_key(key: str) -> bytes:
    """The identity of a result or an effect, wherever its execution lived."""
    return hashlib.sha256(key[key.index(_FROM_TENANT) :].encode()).digest()


def names_in(data: bytes) -> Iterator[bytes]:
    """The identity of every object that these bytes name, in whatever form."""
    for found in _DIGESTS.finditer(data):
        run = found[0].decode("ascii")
        # In a column of a table digests stand one after the other, with nothing between them.
        for start in range(0, len(run) - _DIGEST_CHARS + 1, _DIGEST_CHARS):
            yield bytes.fromhex(run[start : start + _DIGEST_CHARS])
    for found in _KEYS.finditer(data):
        key = found[0].decode(errors="replace")
        if _FROM_TENANT in key:
            yield identity_of_key(key)
    for found in _URIS.finditer(data):
        try:
            coordinates = ResultCoordinates.parse(found[0].decode(errors="replace"))
        except InvalidName:
            continue
        yield identity_of_key(coordinates.physical_key(_ANYWHERE))
