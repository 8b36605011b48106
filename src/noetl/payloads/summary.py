"""What a payload is without its bytes, for evidence that two systems hold the same data."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable

import msgspec

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound, Unavailable
from noetl.kernel import canonical
from noetl.kernel.event import PayloadRef
from noetl.payloads.blocking import closing
from noetl.payloads.resolver import Resolver, scheme_of
from noetl.payloads.spool import Digest
from noetl.payloads.store import PayloadStore

__all__ = [
    "DAMAGED",
    "MISSING",
    "NOT_AVAILABLE",
    "UNREADABLE_REFERENCE",
    "PayloadSummary",
    "summarise",
    "summary_checksum",
]

MISSING = "missing"
DAMAGED = "digest mismatch"
UNREADABLE_REFERENCE = "invalid reference"
NOT_AVAILABLE = "store not available"


class PayloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A payload as its reference describes it, and what is wrong with the stored object, if anything.

    The error is one of a few fixed texts: paths or hosts would make equal findings differ between machines.
    """

    uri: str
    sha256: str
    bytes: int
    rows: int | None
    media_type: str
    error: str | None


async def summarise(
    ref: PayloadRef, store: PayloadStore, resolver: Resolver | None = None, *, degraded: bool = False
) -> PayloadSummary:
    """Read the payload through, chunk by chunk, and say whether it is what the reference promises.

    What the store does not hold itself is found by the `resolver`. A missing or damaged object is a finding. A store
    that does not answer is none, and raises Unavailable: a summary written down during an outage would accuse sound
    data. Whoever is content with less asks for `degraded`, and is told which payloads could not be had.
    """
    return PayloadSummary(
        uri=ref.uri,
        sha256=ref.sha256,
        bytes=ref.bytes,
        rows=ref.rows,
        media_type=ref.media_type,
        error=await _problem(ref, store, resolver, degraded),
    )


def summary_checksum(summaries: Iterable[PayloadSummary]) -> str:
    """One digest over all summaries, the same in whatever order they were gathered."""
    encoded = sorted(canonical.encode(msgspec.to_builtins(summary)) for summary in summaries)
    return hashlib.sha256(b"[" + b",".join(encoded) + b"]").hexdigest()


async def _problem(ref: PayloadRef, store: PayloadStore, resolver: Resolver | None, degraded: bool) -> str | None:
    try:
        async with closing(_opened(ref, store, resolver)) as pieces:
            async for _ in pieces:
                pass
    except Unavailable:
        if not degraded:
            raise
        return NOT_AVAILABLE
    except NotFound:
        return MISSING
    except IntegrityMismatch:
        return DAMAGED
    except InvalidInput:
        return UNREADABLE_REFERENCE
    return None


def _opened(ref: PayloadRef, store: PayloadStore, resolver: Resolver | None) -> AsyncIterator[bytes]:
    if resolver is None or scheme_of(ref.uri) == "noetl":
        return store.open(ref)
    return _checked(ref, resolver.stream(ref.uri))


async def _checked(ref: PayloadRef, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Bytes from elsewhere, which must be the ones referred to all the same."""
    digest = Digest()
    async with closing(stream) as pieces:
        async for piece in pieces:
            await digest.add(piece)
            if digest.size > ref.bytes:
                break
            yield piece
    if (digest.size, digest.sha256) != (ref.bytes, ref.sha256):
        raise IntegrityMismatch(f"'{ref.uri}' is not what its reference says", hint="restore it")
