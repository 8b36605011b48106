"""How much a request may bring."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noetl.settings import format_size

__all__ = ["BodyLimit"]


class BodyLimit:
    """Stops reading a body that is too large, whether or not it said so beforehand.

    Paths below `exempt` look after themselves: they stream.
    """

    def __init__(self, app: ASGIApp, most: int, exempt: tuple[str, ...] = ()) -> None:
        self._app = app
        self._most = most
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with a receive that counts."""
        if scope["type"] != "http" or scope["path"].startswith(self._exempt):
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = declared.isdigit() and int(declared) > self._most
        seen = 0

        async def counting() -> Message:
            nonlocal seen
            if too_large:
                raise self._refused()
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise self._refused()
            return message

        await self._app(scope, counting, send)

    def _refused(self) -> HTTPException:
        return HTTPException(413, f"the body has more than {format_size(self._most)}")
