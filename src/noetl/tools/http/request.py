"""From the fields of a task to what is sent (DSL 9.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import msgspec

from noetl.kernel.event import Json
from noetl.observe import traces
from noetl.tools.base import Call
from noetl.tools.http.auth import basic, credentials_of
from noetl.tools.values import BadField, seconds, truth

__all__ = ["DEFAULT_TIMEOUT", "Request", "request_of"]

DEFAULT_TIMEOUT = 60.0
JSON_TYPE = "application/json"
_KEPT = 256
FORM_TYPE = "application/x-www-form-urlencoded"
TEXT_TYPE = "text/plain; charset=utf-8"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PATH_SAFE = "/%:@!$&'()*+,;=~"
_QUERY_SAFE = _PATH_SAFE + "?[]"
# Their data, when it is not split, is a query string.
_BODILESS = frozenset({"GET", "DELETE", "HEAD"})
# The length is that of the body we send, and how it is framed is the library's business.
_PRIVATE = frozenset({"authorization", "cookie"})
_OURS = frozenset({"content-length", "transfer-encoding"})
_BODIES = frozenset({"data", "json", "payload", "form", "body"})
_PLAIN_FIELDS = frozenset({"url", "endpoint", "params", "timeout"})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, ready to go."""

    method: str
    url: str
    public: str
    """The same without what a credential added to it: what the result says."""
    shown: str
    """The address without query, user or password: what may stand in a message."""
    headers: dict[str, str]
    private: frozenset[str]
    """Lower-case names of headers that another origin must not see."""
    body: bytes | None
    timeout: float
    verify: bool = True
    follow: bool = False

    @property
    def sent(self) -> str:
        """The request as a message speaks of it."""
        return f"{self.method} {self.shown}"


class _Body(msgspec.Struct, frozen=True):
    content: bytes | None = None
    content_type: str = ""
    query: str = ""


_NOTHING = _Body()


def request_of(call: Call) -> Request:
    """Read the fields. Raises BadField for what cannot be sent."""
    fields = call.fields
    if call.auth is None and fields.keys() <= _PLAIN_FIELDS:
        return _plain_request(call)
    method = _method(fields.get("method"))
    headers = _headers(fields.get("headers"))
    body = _NOTHING if _BODIES.isdisjoint(fields) else _body(fields, method, headers.get("content-type", ("", ""))[1])
    credentials = credentials_of(call.auth)
    address = _address(fields)
    for name, value in credentials.headers.items():
        headers.setdefault(name.lower(), (name, value))
    for name, value in _headers_of_ours(call, address).items():
        headers.setdefault(name.lower(), (name, value))
    if body.content is not None:
        headers.setdefault("content-type", ("Content-Type", body.content_type))
    public = address.with_query(_pairs("params", fields.get("params")), body.query)
    return Request(
        method=method,
        url=_longer(public, urlencode(credentials.query)) if credentials.query else public,
        public=public,
        shown=address.shown,
        headers=dict(headers.values()),
        private=_PRIVATE.union(name.lower() for name in credentials.headers) if credentials.headers else _PRIVATE,
        body=body.content,
        timeout=_timeout(call),
        verify=truth(fields, "verify_ssl", "verify", default=True),
        follow=truth(fields, "follow_redirects", default=False),
    )


def _plain_request(call: Call) -> Request:
    """A task that says where to go, and for how long, as most do of which there are many."""
    address, params = _address(call.fields), call.fields.get("params")
    public = address.url if params is None else _longer(address.url, _pairs("params", params))
    return Request(
        method="GET",
        url=public,
        public=public,
        shown=address.shown,
        headers=_headers_of_ours(call, address),
        private=_PRIVATE,
        body=None,
        timeout=_timeout(call),
    )


def _timeout(call: Call) -> float:
    own = seconds(call.fields, "timeout", "timeout_seconds", default=DEFAULT_TIMEOUT)
    return min(own, call.timeout) if call.timeout else own


def _headers_of_ours(call: Call, address: _Address) -> dict[str, str]:
    """What is added to the headers of a task, unless it has them itself."""
    headers: dict[str, str] = {}
    if address.login is not None:
        headers["Authorization"] = basic(*address.login)
    if call.effect_key:
        headers["Idempotency-Key"] = call.effect_key
    if (place := traces.current()) is not None:
        headers |= place.carried()
    return headers


# --- Address ----------------------------------------------------------------------------------------------


class _Address(msgspec.Struct, frozen=True):
    """An address as it is sent, and what was written in it."""

    url: str
    shown: str
    login: tuple[str, str] | None

    def with_query(self, query: str, more: str) -> str:
        return _longer(self.url, f"{query}&{more}" if query and more else query or more)


def _longer(url: str, query: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


def _address(fields: Json) -> _Address:
    value = fields.get("url")
    if value is None:
        value = fields.get("endpoint")
    if value is None:
        raise BadField("an http task needs url or endpoint", code="FIELD_MISSING")
    text = str(value)
    return _read_address(text) if "@" in text else _known_address(text)  # a password is not kept


@lru_cache(_KEPT)
def _known_address(text: str) -> _Address:
    """Rows of a stage mostly go to the same few addresses, with other parameters."""
    return _read_address(text)


def _read_address(text: str) -> _Address:
    parts = _parts(text.strip())
    login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    place = f"{parts.scheme}://{_netloc(parts)}"
    path = _quoted(parts.path, _PATH_SAFE)
    return _Address(_longer(f"{place}{path or '/'}", _quoted(parts.query, _QUERY_SAFE)), f"{place}{path}", login)


def _parts(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and not _CONTROL.search(text)
        usable = usable and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
        parts = SplitResult("", "", "", "", "")
    if not usable:
        raise BadField("url must be an address such as https://example.org/path", code="URL_INVALID")
    return parts


def _netloc(parts: SplitResult) -> str:
    place = parts.netloc.rpartition("@")[2]
    if place.isascii():
        return place
    host, colon, port = place.partition(":")
    try:
        return host.encode("idna").decode("ascii") + colon + port
    except UnicodeError:
        raise BadField(f"url has no valid host name: '{host}'", code="URL_INVALID") from None


def _quoted(text: str, safe: str) -> str:
    """Only what may not stand in an address is changed: a signed address must arrive as it was written."""
    return quote(_LONE_PERCENT.sub("%25", text), safe=safe)


def _pairs(name: str, value: Any) -> str:
    """A query string: a list repeats its key, none leaves it out."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _quoted(value.strip().removeprefix("?"), _QUERY_SAFE)
    if not isinstance(value, dict | Mapping):
        raise BadField(f"{name} must be a mapping")
    pairs: list[str] = []
    for key, given in value.items():
        name, items = _spelled(str(key)), given if isinstance(given, list | tuple) else (given,)
        pairs += [f"{name}={_spelled(_word(item))}" for item in items if item is not None]
    return "&".join(pairs)


def _spelled(text: str) -> str:
    """As it stands in a query. Most keys and values are words in which nothing has to be changed."""
    return text if _PLAIN.fullmatch(text) else quote(text, safe="")


def _word(item: Any) -> str:
    if type(item) is str:
        return item
    if type(item) is int:
        return str(item)
    if isinstance(item, bool | Mapping | list):
        return msgspec.json.encode(item).decode()
    return str(item)


# --- Method and headers -----------------------------------------------------------------------------------


def _method(value: Any) -> str:
    if value is None:
        return "GET"
    method = str(value).strip().upper()
    if not _TOKEN.fullmatch(method):
        raise BadField(f"method '{value}' is not an HTTP method")
    return method


def _headers(value: Any) -> dict[str, tuple[str, str]]:
    """Name and value by lower-case name."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadField("headers must be a mapping")
    found = {}
    for name, given in value.items():
        if given is None or str(name).lower() in _OURS:
            continue
        text = _word(given).strip()
        if not _TOKEN.fullmatch(str(name)) or _CONTROL.search(text.replace("\t", " ")):
            raise BadField(f"header '{name}' has characters that cannot be sent")
        found[str(name).lower()] = (str(name), text)
    return found


# --- Body -------------------------------------------------------------------------------------------------


def _body(fields: Json, method: str, content_type: str) -> _Body:
    data = _data(fields.get("data"), method, content_type)
    for name in ("json", "payload"):
        if fields.get(name) is not None:
            return _Body(_json(name, fields[name]), JSON_TYPE, data.query)
    if fields.get("form") is not None:
        return _Body(_pairs("form", fields["form"]).encode(), FORM_TYPE, data.query)
    if fields.get("body") is not None:
        return msgspec.structs.replace(_text_or_json("body", fields["body"]), query=data.query)
    return data


def _data(value: Any, method: str, content_type: str) -> _Body:
    if value is None:
        return _NOTHING
    if isinstance(value, Mapping) and value and value.keys() <= {"query", "body"}:
        inner = value.get("body")
        body = _Body() if inner is None else _by_type(inner, content_type)
        return msgspec.structs.replace(body, query=_pairs("data.query", value.get("query")))
    if method in _BODILESS:
        return _Body(query=_pairs("data", value))
    return _by_type(value, content_type)


def _by_type(value: Any, content_type: str) -> _Body:
    media = content_type.partition(";")[0].strip().lower()
    if media == FORM_TYPE:
        return _Body(_pairs("data", value).encode(), FORM_TYPE)
    if isinstance(value, str) and media and not media.endswith("json"):
        return _Body(value.encode(), content_type)  # the task said what this text is
    return _Body(_json("data", value), JSON_TYPE)


def _text_or_json(name: str, value: Any) -> _Body:
    if isinstance(value, str):
        return _Body(value.encode(), TEXT_TYPE)
    return _Body(_json(name, value), JSON_TYPE)


def _json(name: str, value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadField(f"{name} cannot be written as JSON: {error}") from None
