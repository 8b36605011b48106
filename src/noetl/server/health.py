"""Whether the server is there, and whether all that it needs is."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import APIRouter, Request, Response

from noetl import __version__
from noetl.errors import Unavailable
from noetl.server.condition import Condition, Trouble
from noetl.server.wire import answer, described

__all__ = ["Health", "router"]

router = APIRouter(tags=["health"])


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server answers, which release it is, and what does not work as it should."""

    status: Literal["ok", "degraded"]
    version: str
    problems: tuple[Trouble, ...] = ()


@router.get("/health", **described(Health))
@router.get("/api/health", name="api_health", **described(Health))
async def health(request: Request) -> Response:
    """Answers as soon as the server is ready, to anybody: also while something is away, and then says what.

    503 once it was asked to end, and drains.
    """
    _refuse_while_draining(request)
    troubles = await _condition(request).troubles()
    return answer(Health(status="degraded" if troubles else "ok", version=__version__, problems=troubles))


@router.get("/api/health/ready", **described(Health))
async def ready(request: Request) -> Response:
    """Whether it makes sense to send requests here: 503 while the ledger is away."""
    _refuse_while_draining(request)
    condition = _condition(request)
    troubles = await condition.troubles()
    if not condition.is_ready:
        raise Unavailable(f"not ready: {troubles[0].part} {troubles[0].problem}", hint="try again in a moment")
    return answer(Health(status="degraded" if troubles else "ok", version=__version__, problems=troubles))


def _condition(request: Request) -> Condition:
    condition: Condition = request.app.state.condition
    return condition


def _refuse_while_draining(request: Request) -> None:
    if request.app.state.closing.is_set():
        raise Unavailable("this server is draining: it finishes what it has begun", hint="ask another one")
