"""Who gets in: tokens where there is authentication, this machine's own programs where there is none.

The guard stands before every route, known or not, so that a new route cannot forget it. Only the health check is
open, and the routes of slots and of our own services, which ask for the token of a stage or of a service themselves.
Without authentication the danger is a browser on the same machine: a page from elsewhere may reach a loopback address
by a name of its own (DNS rebinding) or send a form there. Such requests are told by their Host and Origin.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Collection
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from noetl.errors import Forbidden, NoetlError, Unauthenticated
from noetl.kernel.time import format_time
from noetl.observe import metrics
from noetl.ports.access import Caller
from noetl.ports.clock import Clock
from noetl.ports.tokens import TokenInfo, Tokens
from noetl.runtime.custody import TOKEN_PREFIX, digest_of
from noetl.runtime.stages.paths import read_path
from noetl.server import internal
from noetl.server.problems import respond

__all__ = ["Admit", "Guard", "LoopbackOnly", "TokenHolders", "identify", "is_still_admitted"]

_log = logging.getLogger("noetl.server")
_OPEN_PATHS = frozenset({"/health", "/api/health", "/api/health/ready"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_TOKEN = re.compile(rf"{TOKEN_PREFIX}_([0-9a-f]{{16}})_[0-9a-f]{{64}}", re.ASCII)
_NOBODY = "0" * 64
_KEY = "noetl.caller"
_ADMIT = "noetl.admit"


class Admit(Protocol):
    """A way to tell who asks."""

    async def __call__(self, request: Request) -> Caller:
        """The caller. Raises Unauthenticated or Forbidden."""
        ...


class LoopbackOnly:
    """Everybody is the local user, if it is a program of this machine that asks, and not a page from elsewhere."""

    def __init__(self, local: Caller, hosts: Collection[str] = ()) -> None:
        self._local = local
        self._hosts = _LOOPBACK_NAMES | {host.strip("[]").lower() for host in hosts}

    async def __call__(self, request: Request) -> Caller:
        """The local user. Raises Forbidden for another site's request."""
        host = request.headers.get("host", "")
        if _name_in(host) not in self._hosts:
            metrics.count("noetl_auth_refused_total", "host")
            raise Forbidden(
                f"the Host '{host[:100]}' is not this machine's",
                hint="use http://127.0.0.1, or start the server with --auth token to be reached by other names",
            )
        if request.method not in _SAFE_METHODS and _is_cross_site(request, host):
            metrics.count("noetl_auth_refused_total", "origin")
            raise Forbidden(
                "a page of another site may not change anything here",
                hint="start the server with --auth token, and send a token",
            )
        return self._local


class TokenHolders:
    """Those who hold a token that is in force."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._seen: dict[str, str] = {}

    async def __call__(self, request: Request) -> Caller:
        """Whoever the token stands for. Raises Unauthenticated."""
        info = await self._holder(request.headers.getlist("authorization"))
        now = format_time(self._clock.now())
        if info.revoked_at is not None:
            raise _refused("revoked", f"the token '{info.name}' was revoked")
        if info.expires_at is not None and info.expires_at <= now:
            raise _refused("expired", f"the token '{info.name}' has expired on {info.expires_at[:10]}")
        await self._remember(info.token_id, now[:10])
        return Caller(
            principal=f"token:{info.name}",
            tenant_id=info.tenant_id,
            organization_id=info.organization_id,
            roles=frozenset(info.roles),
        )

    async def _holder(self, headers: list[str]) -> TokenInfo:
        scheme, _, text = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not text.strip():
            raise _refused("missing", "there is no token in the request")
        text = text.strip()
        form = _TOKEN.fullmatch(text)
        stored = await self._tokens.find(form[1]) if form else None
        # Always one comparison, in constant time: how long it takes tells nothing about what is known.
        same = hmac.compare_digest(digest_of(text), stored.sha256 if stored else _NOBODY)
        if stored is None or not same:
            raise _refused("unknown", "the token is not one that this server knows")
        return stored.info

    async def _remember(self, token_id: str, day: str) -> None:
        """One write a day for each token. A disk that is full must not keep anybody from looking."""
        if self._seen.get(token_id) == day:
            return
        self._seen[token_id] = day
        try:
            await self._tokens.touch(token_id, day)
        except NoetlError as error:
            self._seen.pop(token_id, None)
            _log.warning("the last use of token %s is not remembered: %s", token_id, error)


class Guard:
    """Lets nobody past who is not admitted; whoever is, the routes know by `identify`."""

    def __init__(self, app: ASGIApp, admit: Admit) -> None:
        self._app = app
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit, then pass on; or answer with what is wrong."""
        if scope["type"] == "http" and not _looks_after_itself(scope["path"]):
            try:
                scope[_KEY], scope[_ADMIT] = await self._admit(Request(scope)), self._admit
            except NoetlError as error:
                await respond(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def identify(request: Request) -> Caller:
    """Whom the guard has let in."""
    found: Caller = request.scope[_KEY]
    return found


async def is_still_admitted(request: Request) -> bool:
    """Whether whoever asked this would be let in now. While nobody can tell, what was known before holds."""
    admit: Admit | None = request.scope.get(_ADMIT)
    try:
        return admit is None or await admit(request) == request.scope[_KEY]
    except (Unauthenticated, Forbidden):
        return False
    except NoetlError as error:
        _log.warning("whether a caller may still listen is not known: %s", error)
        return True


def _looks_after_itself(path: str) -> bool:
    """Whether nobody needs to be known to ask there, or the route itself asks for a token of another kind."""
    return path in _OPEN_PATHS or path in internal.PATHS or read_path(path) is not None


def _refused(reason: str, message: str) -> Unauthenticated:
    metrics.count("noetl_auth_refused_total", reason)
    return Unauthenticated(message, hint="send 'Authorization: Bearer <token>'; noetl token create makes one")


def _name_in(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_cross_site(request: Request, host: str) -> bool:
    """Browsers say where a request comes from; other programs say nothing."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return True
    return request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
