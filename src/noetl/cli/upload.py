"""Sending a body to a server: streamed from the disk, over the standard library's own client.

A push is one request; that is no reason to load an HTTP stack.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from noetl.api.refusals import error_of
from noetl.errors import InvalidInput, Unavailable

__all__ = ["Target", "post"]

_SECONDS = 300.0
_MOST_ANSWER = 1 << 20


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and what lets us in."""

    url: str
    token: str | None = None


def post(target: Target, path: str, headers: Mapping[str, str], length: int, body: Iterable[bytes]) -> dict[str, Any]:
    """The server's answer to one request. Raises Unavailable, or what the server has refused it with."""
    connection, base = _connection(target.url)
    sent = {**headers, "Content-Length": str(length), "Accept": "application/json"}
    if target.token is not None:
        sent["Authorization"] = f"Bearer {target.token}"
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # A server that has seen enough answers and hangs up; its answer says why.
            connection.request("POST", base + path, body=body, headers=sent)
        response = connection.getresponse()
        answer = response.read(_MOST_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"{target.url} did not answer: {_reason(error)}",
            hint="see that the server is running and the address is right; pushing again is harmless",
        ) from None
    finally:
        connection.close()
    return _read(target.url, response.status, answer)


def _connection(url: str) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"'{url}' is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(f"'{url}' is not the address of a server", hint="write it as http://127.0.0.1:8082")
    if parts.username is not None:
        raise InvalidInput("an address does not hold a password", hint="put the token into a variable: --token-env VAR")
    base = parts.path.rstrip("/").removesuffix("/api")
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(parts.hostname, port, timeout=_SECONDS, context=context), base
    return http.client.HTTPConnection(parts.hostname, port, timeout=_SECONDS), base


def _read(url: str, status: int, answer: bytes) -> dict[str, Any]:
    if status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED) or status < http.client.OK:
        raise InvalidInput(
            f"{url} is not a server that takes this ({status})", hint="check its address, and its release"
        )
    if status >= http.client.MULTIPLE_CHOICES:
        raise error_of(status, answer, url)
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise InvalidInput(f"{url} does not answer as a NoETL server does", hint="check its address") from None


def _reason(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed in the middle"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
