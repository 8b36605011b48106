"""The application: every route, what they have in common, and how the API describes itself."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route

from noetl import __version__
from noetl.adapters.memory.access import AllowAll
from noetl.observe.prometheus import PrometheusRecorder
from noetl.ports.access import Access
from noetl.runtime.custody import custody_of
from noetl.runtime.levels import OutboxLevels
from noetl.runtime.service import Services
from noetl.server import (
    archives,
    batch,
    catalog,
    credentials,
    executions,
    health,
    internal,
    keychain,
    metrics,
    problems,
    quotas,
    reports,
    schedules,
    stages,
    streams,
    values,
    work,
)
from noetl.server.auth import Admit, Guard, identify
from noetl.server.condition import Condition
from noetl.server.context import as_local_user
from noetl.server.limits import BodyLimit
from noetl.server.wire import components
from noetl.server.work_document import paths_of_workers
from noetl.settings import Settings

__all__ = ["build_app"]

MOST_BODY = 16 * 1024 * 1024
_STREAMED = ("/api/events/batch", "/api/commands/")
_ROUTERS = (
    health.router, executions.router, streams.router, batch.router, values.router, catalog.router, credentials.router,
    keychain.router, metrics.router, internal.router, schedules.router, quotas.router, reports.router,
    archives.router,
)  # fmt: skip
_ABOUT = (
    "Runs playbooks, and shows what has become of them. Ids are decimal text in answers; in requests numbers are "
    "right, too. Errors are problem details (RFC 9457)."
)


def build_app(
    services: Services,
    settings: Settings,
    *,
    admit: Admit | None = None,
    access: Access | None = None,
    recorder: PrometheusRecorder | None = None,
    service_token: internal.ServiceToken | None = None,
    most_body: int = MOST_BODY,
) -> FastAPI:
    """The application over some services.

    `admit` tells who asks, and `access` what they may do; without them everybody is the local user. Whoever runs
    the application sets `app.state.closing` when it is to end: streams end by it.
    """
    app = FastAPI(
        title="NoETL", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.services = services
    app.state.identify = as_local_user(settings) if admit is None else identify
    app.state.access = access or AllowAll()
    app.state.custody = custody_of(services.embedded, settings)
    app.state.service_token = service_token
    app.state.recorder = recorder or PrometheusRecorder()
    app.state.outbox_levels = OutboxLevels(services.embedded.outbox, services.embedded.clock)
    app.state.closing = asyncio.Event()
    app.state.condition = Condition(services)
    app.state.archiving = archives.Archiving(services)
    problems.install(app)
    # The busiest route stands first and has nothing for FastAPI to solve; its twin below is what OpenAPI describes.
    app.router.routes.insert(0, Route("/api/execute", executions.execute, methods=["POST"]))
    app.router.routes.extend([*stages.routes(), *work.routes()])
    for router in _ROUTERS:
        app.include_router(router)
    # The last one added is the first to see a request.
    app.add_middleware(BodyLimit, most=most_body, exempt=_STREAMED)
    if admit is not None:
        app.add_middleware(Guard, admit=admit)
    app.add_middleware(metrics.Measured)
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]  # FastAPI's own way to change it
    return app


def _description(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        found["paths"].update(paths_of_workers())
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(components())
        app.openapi_schema = found
    return app.openapi_schema
