"""Whether the server is there."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import APIRouter, Response

from noetl import __version__
from noetl.server.wire import answer, described

__all__ = ["Health", "router"]

router = APIRouter(tags=["health"])


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The server answers, and which release it is."""

    status: Literal["ok"] = "ok"
    version: str = __version__


@router.get("/health", **described(Health))
@router.get("/api/health", name="api_health", **described(Health))
async def health() -> Response:
    """Answers as soon as the server is ready, to anybody."""
    return answer(Health())
