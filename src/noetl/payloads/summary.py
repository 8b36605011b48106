"""What a payload is without its bytes, for evidence that two systems hold the same data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.event import PayloadRef
from noetl.payloads.store import PayloadStore

__all__ = ["DAMAGED", "MISSING", "UNREADABLE_REFERENCE", "PayloadSummary", "summarise", "summary_checksum"]

MISSING = "missing"
DAMAGED = "digest mismatch"
UNREADABLE_REFERENCE = "invalid reference"


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


async def summarise(ref: PayloadRef, store: PayloadStore) -> PayloadSummary:
    """Read the payload through, chunk by chunk, and say whether it is what the reference promises.

    A missing or damaged object is a finding. A store that does not answer is none, and raises Unavailable:
    a summary written down during an outage would accuse sound data.
    """
    return PayloadSummary(
        uri=ref.uri,
        sha256=ref.sha256,
        bytes=ref.bytes,
        rows=ref.rows,
        media_type=ref.media_type,
        error=await _problem(ref, store),
    )


def summary_checksum(summaries: Iterable[PayloadSummary]) -> str:
    """One digest over all summaries, the same in whatever order they were gathered."""
    encoded = sorted(canonical.encode(msgspec.to_builtins(summary)) for summary in summaries)
    return hashlib.sha256(b"[" + b",".join(encoded) + b"]").hexdigest()


async def _problem(ref: PayloadRef, store: PayloadStore) -> str | None:
    try:
        async for _ in store.open(ref):
            pass
    except NotFound:
        return MISSING
    except IntegrityMismatch:
        return DAMAGED
    except InvalidInput:
        return UNREADABLE_REFERENCE
    return None
