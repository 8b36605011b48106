"""Tokens from a token endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from noetl.errors import InvalidInput, Unavailable
from noetl.kernel.event import Json
from noetl.tools.secrets.cache import Held

__all__ = ["DEFAULT_LIFETIME", "Answer", "Http", "Request", "fetch_token"]

DEFAULT_LIFETIME = 300.0
"""Seconds that a value is kept whose source does not say how long it lives."""

_OK = range(200, 300)
_MOST_SAID = 200


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call to a token endpoint."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What it said."""

    status: int
    body: bytes


Http = Callable[[Request], Awaitable[Answer]]
"""Sends a request. Raises when there is no answer."""


async def fetch_token(http: Http, fields: Json, now: int) -> Held:
    """Ask the endpoint of an entry for a token. No error repeats what was sent or what came back whole."""
    request = _request(fields)
    place = urlsplit(request.url).netloc.rpartition("@")[2]
    try:
        answer = await http(request)
    except Exception as error:  # whatever the client raises, there was no answer
        raise Unavailable(f"the token endpoint {place} does not answer: {type(error).__name__}") from None
    document = _decoded(answer.body)
    if answer.status not in _OK:
        raise Unavailable(f"the token endpoint {place} answered {answer.status}{_reason(document)}")
    if not isinstance(document, dict):
        raise InvalidInput(f"the token endpoint {place} answered {answer.status}, but not with a JSON object")
    return Held(fields=document, expires_at=now + int(_lifetime(document) * 1e6))


def _request(fields: Json) -> Request:
    url = fields.get("endpoint")
    if not isinstance(url, str) or urlsplit(url).scheme not in ("https", "http"):
        raise InvalidInput("an oauth2 entry needs an endpoint that is a URL", hint="endpoint: https://...")
    data = fields.get("data")
    headers = {str(name): str(value) for name, value in (fields.get("headers") or {}).items()}
    kinds = [value for name, value in headers.items() if name.lower() == "content-type"]
    body: bytes | None = None
    if data is not None and kinds and "json" in kinds[0].lower():
        body = msgspec.json.encode(data)
    elif isinstance(data, dict):
        body = urlencode({key: value for key, value in data.items() if value is not None}, doseq=True).encode()
        headers |= {} if kinds else {"Content-Type": "application/x-www-form-urlencoded"}
    elif data is not None:
        body = str(data).encode()
    return Request(method=str(fields.get("method") or "POST").upper(), url=url, headers=headers, body=body)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _reason(document: Any) -> str:
    """The endpoint's own words for its refusal (RFC 6749, 5.2), which are meant to be shown."""
    if not isinstance(document, dict):
        return ""
    words = [str(document[name]) for name in ("error", "error_description") if isinstance(document.get(name), str)]
    return f": {' - '.join(words)[:_MOST_SAID]}" if words else ""


def _lifetime(document: Json) -> float:
    try:
        seconds = float(document["expires_in"])
    except (KeyError, TypeError, ValueError):
        return DEFAULT_LIFETIME
    return max(seconds, 0.0)
