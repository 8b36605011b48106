"""Routes of slots: frames of stages that are kept here, for whoever shows the token of such a stage.

They stand apart from the rest of the API: their callers hold no token of a user, and need none. What they may do ends
with the stage.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noetl.errors import NoetlError
from noetl.runtime.service import Services
from noetl.runtime.stages.loopback import problem
from noetl.runtime.stages.paths import SLOT_ROUTES
from noetl.server.problems import MEDIA_TYPE

__all__ = ["routes"]


def routes() -> list[Route]:
    """Every path that slots ask."""
    return [Route(path, _answer, methods=["POST"]) for path in SLOT_ROUTES]


async def _answer(request: Request) -> Response:
    services: Services = request.app.state.services
    authorization = request.headers.get("authorization", "")
    try:
        door = services.door(authorization)
        body = await door.answer(request.scope["path"], authorization, await request.body())
    except NoetlError as error:
        status, said = problem(error)
        return Response(said, status, media_type=MEDIA_TYPE)
    return Response(body, media_type="application/json")
