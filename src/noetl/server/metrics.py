"""Metrics of the server: every request counted by its route, and the page that Prometheus reads."""

from __future__ import annotations

import time

from fastapi import APIRouter, Depends, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noetl.observe import metrics
from noetl.observe.prometheus import CONTENT_TYPE, PrometheusRecorder
from noetl.replay.shares import projected_to
from noetl.runtime.levels import backlog, backlog_detail
from noetl.runtime.projector import PROJECTOR
from noetl.server.context import Caller, require_here, services_of

__all__ = ["Measured", "router"]

router = APIRouter(tags=["metrics"])

_READ = Depends(require_here("read"))
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measured:
    """Counts requests by the template of their route: an address that is made up adds no series."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and note when the answer begins."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "unmatched")
                metrics.observe("noetl_http_request_seconds", time.perf_counter() - began, method, route)
                metrics.count("noetl_http_requests_total", method, route, str(message["status"]))
            await send(message)

        await self._app(scope, receive, noting)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
@router.get("/api/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def show(request: Request, _: Caller = _READ) -> Response:
    """The metrics of this process in Prometheus' text format; for those of the server's own tenant."""
    recorder: PrometheusRecorder = request.app.state.recorder
    services = services_of(request)
    embedded, stages = services.embedded, services.stages()
    behind = await embedded.ledger.position() - await projected_to(embedded.projections, PROJECTOR)
    recorder.level("noetl_projection_lag_events", max(0, behind))
    for level in await embedded.tiers.levels():
        recorder.level("noetl_payload_tier_bytes", level.bytes, level.tier)
        recorder.level("noetl_payload_tier_budget_bytes", level.budget, level.tier)
    recorder.levels("noetl_frame_backlog_total", backlog(stages))
    recorder.levels("noetl_frame_backlog_detail_total", backlog_detail(stages))
    if services.tells_others:
        await request.app.state.outbox_levels.set(recorder)
    return Response(recorder.text(), media_type=CONTENT_TYPE)
