"""Credentials of a request. What is added here is known by name, so that a redirect elsewhere can leave it out."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.tools.values import BadField

__all__ = ["Credentials", "basic", "credentials_of"]

_TOKEN = ("token", "access_token", "id_token", "secret", "value", "api_key", "key")
_API_KEY = ("api_key", "value", "secret", "token", "key")
_USER = ("username", "user", "login")
_TOKEN_TYPES = frozenset({"bearer", "secret", "google_oauth", "oauth2", "auth0", "token"})
# What tells one credential from a mapping of aliases.
_MARKS = frozenset({"type", "data", "password", *_TOKEN, *_USER})


class Credentials(msgspec.Struct, frozen=True):
    """Headers and query parameters that authenticate a request."""

    headers: dict[str, str] = {}
    query: dict[str, str] = {}


_NONE = Credentials()


def credentials_of(auth: Any) -> Credentials:
    """What the resolved `auth` of a task adds. Several aliases add up."""
    if auth is None:
        return _NONE
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    for alias, entry in _entries(auth):
        _add(alias, entry, headers, query)
    return Credentials(headers, query)


def basic(user: str, password: str) -> str:
    """The value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def _entries(auth: Any) -> list[tuple[str, Json]]:
    if auth is None or auth == {}:
        return []
    if not isinstance(auth, Mapping):
        raise _refused("the credential has not been resolved")
    one = any(name in auth and not isinstance(auth[name], Mapping) for name in _MARKS) or "type" in auth
    pairs = [("auth", auth)] if one else list(auth.items())
    for alias, entry in pairs:
        if not isinstance(entry, Mapping):
            raise _refused(f"the credential '{alias}' has not been resolved")
    return [(alias, {**entry, **(entry.get("data") or {})}) for alias, entry in pairs]


def _add(alias: str, entry: Json, headers: dict[str, str], query: dict[str, str]) -> None:
    kind = str(entry.get("type") or _guess(entry)).lower()
    if kind == "basic":
        headers["Authorization"] = basic(_first(alias, entry, _USER), str(entry.get("password") or ""))
    elif kind == "api_key":
        value = _first(alias, entry, _API_KEY)
        place = str(entry.get("in") or entry.get("location") or "header").lower()
        name = str(entry.get("header") or entry.get("header_name") or entry.get("param") or entry.get("name") or "")
        if place == "query":
            query[name or "api_key"] = value
        else:
            headers[name or "X-API-Key"] = f"{entry.get('prefix') or ''}{value}"
    elif kind in _TOKEN_TYPES:
        headers["Authorization"] = "Bearer " + _first(alias, entry, _TOKEN)
    else:
        raise _refused(f"the credential '{alias}' is of type '{kind}', which http cannot use")


def _guess(entry: Json) -> str:
    if any(entry.get(name) is not None for name in _USER) and "password" in entry:
        return "basic"
    return "api_key" if "api_key" in entry or "header" in entry else "bearer"


def _first(alias: str, entry: Json, names: tuple[str, ...]) -> str:
    for name in names:
        value = entry.get(name)
        if value is not None and value != "":
            return str(value).strip()
    raise _refused(f"the credential '{alias}' has no {' or '.join(names[:2])}")


def _refused(message: str) -> BadField:
    return BadField(message, kind="auth", code="CREDENTIAL_INVALID")
