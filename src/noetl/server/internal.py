"""Routes for the parts of an installation that have no database: the outbox and the projections, over HTTP.

They serve all tenants, so no user's token opens them, and no service token opens anything else. Without a service token
there is nobody who may call them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from msgspec import Meta
from starlette.routing import Route

from noetl.archive.wire import encode_event
from noetl.errors import Conflict, InvalidSetting, Unauthenticated
from noetl.kernel.names import EventSubject
from noetl.observe import metrics
from noetl.ports.fabric import shard_of_event
from noetl.ports.outbox import OutboxRow
from noetl.server.context import services_of
from noetl.server.wire import answer, described, read
from noetl.settings import SERVICE_TOKEN_VARIABLE

__all__ = ["PATHS", "ServiceToken", "router", "service_token_of"]

router = APIRouter(prefix="/api/internal", tags=["internal"])

_LEAST_TOKEN = 32
_MOST_ROWS = 10_000
_NOBODY = "0" * 64

Owner = Annotated[str, Meta(min_length=1, max_length=200, description="Who claims: the same for all calls of one.")]
Position = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Positions = Annotated[list[Position], Meta(min_length=1, max_length=_MOST_ROWS)]


class ServiceToken:
    """What the callers of these routes show. Only its digest is kept."""

    def __init__(self, text: str) -> None:
        """Raises InvalidSetting for one that could be guessed."""
        if len(text) < _LEAST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
            raise InvalidSetting(
                f"{SERVICE_TOKEN_VARIABLE} is not a token: it needs {_LEAST_TOKEN} letters or digits at least",
                hint="make one with: openssl rand -hex 32",
            )
        self._digest = _digest(text)

    def admits(self, text: str) -> bool:
        """Whether this is the one; how long that takes says nothing about it."""
        return hmac.compare_digest(_digest(text), self._digest)


def service_token_of(environ: Mapping[str, str]) -> ServiceToken | None:
    """The token that an installation's own parts call with, or None. Raises InvalidSetting."""
    text = environ.get(SERVICE_TOKEN_VARIABLE)
    return None if text is None else ServiceToken(text)


async def _admitted(request: Request) -> None:
    """Raises Unauthenticated for everybody but the parts of this installation."""
    expected: ServiceToken | None = request.app.state.service_token
    headers = request.headers.getlist("authorization")
    scheme, _, text = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    if expected is None:
        raise _refused("this server has no service token, so nobody may call its internal routes",
                       f"start it with {SERVICE_TOKEN_VARIABLE} in its environment")  # fmt: skip
    if scheme.lower() != "bearer" or not text.strip():
        raise _refused("there is no service token in the request", "send 'Authorization: Bearer <service token>'")
    if not expected.admits(text.strip()):
        raise _refused("the token is not the service token of this server",
                       f"send the one that the server has in {SERVICE_TOKEN_VARIABLE}")  # fmt: skip


def _refused(message: str, hint: str) -> Unauthenticated:
    metrics.count("noetl_auth_refused_total", "service")
    return Unauthenticated(message, hint=hint)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if text else _NOBODY


_ADMITTED = Depends(_admitted)


class OutboxClaim(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which rows to hold, and for how long."""

    owner: Owner
    limit: Annotated[int, Meta(ge=1, le=_MOST_ROWS)] = 100
    lease_seconds: Annotated[float, Meta(ge=1, le=3600)] = 30.0


class ClaimedRow(msgspec.Struct, kw_only=True):
    """An event to be published: under which subject and id, and the bytes as they are published."""

    position: int
    attempts: int
    subject: str
    message_id: str
    event: msgspec.Raw


class ClaimedRows(msgspec.Struct, kw_only=True):
    """The oldest rows that are due, in order of position."""

    rows: list[ClaimedRow]


class PublishedRows(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Rows that were published."""

    owner: Owner
    positions: Positions


class FailedRows(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Rows that could not be published, and when they are due again."""

    owner: Owner
    positions: Positions
    retry_in: Annotated[float, Meta(ge=0, le=3600)] = 1.0


class MarkedRows(msgspec.Struct, kw_only=True):
    """How many of the rows the caller still held."""

    marked: int


class PendingRows(msgspec.Struct, kw_only=True):
    """How many rows are not yet published, claimed ones included."""

    pending: int


class ProjectRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Up to where the rows are wanted; everything that there is without it."""

    position: Position | None = None


class ProjectedRows(msgspec.Struct, kw_only=True):
    """The position that all rows have reached."""

    position: int


@router.post("/outbox/claim", dependencies=[_ADMITTED], **described(ClaimedRows, takes=OutboxClaim))
async def claim(request: Request) -> Response:
    """Hold the oldest events that are due to be published; what is not marked in time is due again."""
    asked = await read(request, OutboxClaim)
    rows = await services_of(request).embedded.outbox.claim(
        asked.owner, limit=asked.limit, lease_seconds=asked.lease_seconds
    )
    return answer(ClaimedRows(rows=[_claimed(row) for row in rows]))


@router.post("/outbox/mark-published", dependencies=[_ADMITTED], **described(MarkedRows, takes=PublishedRows))
async def mark_published(request: Request) -> Response:
    """Say which events the fabric has taken."""
    asked = await read(request, PublishedRows)
    marked = await services_of(request).embedded.outbox.mark_published(asked.owner, asked.positions)
    return answer(MarkedRows(marked=marked))


@router.post("/outbox/mark-failed", dependencies=[_ADMITTED], **described(MarkedRows, takes=FailedRows))
async def mark_failed(request: Request) -> Response:
    """Say which events could not be published, and when to try again."""
    asked = await read(request, FailedRows)
    marked = await services_of(request).embedded.outbox.mark_failed(
        asked.owner, asked.positions, retry_in=asked.retry_in
    )
    return answer(MarkedRows(marked=marked))


@router.get("/outbox/pending-count", dependencies=[_ADMITTED], **described(PendingRows))
async def pending_count(request: Request) -> Response:
    """How many events are still to be published."""
    return answer(PendingRows(pending=await services_of(request).embedded.outbox.pending_count()))


@router.post(
    "/events/project", dependencies=[_ADMITTED], **described(ProjectedRows, 409, takes=ProjectRequest, optional=True)
)
async def project(request: Request) -> Response:
    """Bring all rows up to date with the log; calls at the same moment share the work."""
    asked = await read(request, ProjectRequest, empty=ProjectRequest())
    services = services_of(request)
    last = await services.embedded.ledger.position()
    if asked.position is not None and asked.position > last:
        raise Conflict(f"the log ends at position {last}, before {asked.position}", hint="ask again later")
    return answer(ProjectedRows(position=await services.project()))


PATHS = frozenset(route.path for route in router.routes if isinstance(route, Route))
"""Where no user's token is asked for."""


def _claimed(row: OutboxRow) -> ClaimedRow:
    event = row.event
    subject = EventSubject(
        tenant=event.tenant_id,
        org=event.organization_id,
        execution=event.execution_id,
        shard=shard_of_event(event),
    )
    return ClaimedRow(
        position=row.position,
        attempts=row.attempts,
        subject=str(subject),
        message_id=str(event.event_id),
        event=msgspec.Raw(encode_event(event)),
    )
