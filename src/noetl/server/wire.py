"""Bodies and answers: structs from and to JSON, and the same structs in the API's own description.

Nothing is validated twice. A body goes through one compiled decoder, an answer through one encoder, and OpenAPI
shows the very types that they were made from.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from noetl.errors import InvalidInput
from noetl.server.problems import MEDIA_TYPE, Malformed, Problem

__all__ = ["answer", "components", "described", "read"]

T = TypeVar("T")

_JSON = "application/json"
_encode = msgspec.json.Encoder().encode
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
_types: dict[str, type] = {"Problem": Problem}
_PROBLEMS = {
    400: "The body is not JSON.",
    401: "There is no token, or one that does not hold.",
    403: "The caller may not do this.",
    404: "There is no such thing.",
    409: "It cannot be done in this state.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "What was sent is not valid.",
    429: "The tenant has reached a limit; Retry-After says when to come back.",
    503: "Not now; try again.",
}
_ALWAYS = (401, 403, 422, 503)


def answer(value: Any, status: int = 200) -> Response:
    """A struct as a JSON answer."""
    return Response(_encode(value), status, media_type=_JSON)


async def read(request: Request, kind: type[T], *, empty: T | None = None) -> T:
    """The body as a struct; `empty` is what no body at all stands for. Raises Malformed and InvalidInput."""
    said = request.headers.get("content-type")
    if said is not None and not _is_json(said):
        raise HTTPException(415, f"the body is '{said[:100]}', and only {_JSON} is read here")
    data = await request.body()
    if not data and empty is not None:
        return empty
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        found: T = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(data, error) from None
    return found


def _refused(data: bytes, error: Exception) -> InvalidInput:
    """What is wrong with a body. The decoder stops at the first thing, so whether it is JSON at all is still open."""
    if isinstance(error, msgspec.ValidationError):
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as deeper:
            error = deeper
        else:
            return InvalidInput(f"the body is not valid: {error}")
    return Malformed(f"the body is not JSON: {error}")


def described(
    kind: type | None,
    *errors: int,
    takes: type | None = None,
    optional: bool = False,
    missing: bool = False,
    status: int = 200,
) -> dict[str, Any]:
    """How a route shows in OpenAPI: what it answers, what it takes, and how it fails.

    With `missing` what is not there is answered in the same shape, with 404.
    """
    failing = sorted({*errors, *_ALWAYS, *((400, 413, 415) if takes is not None else ())})
    responses: dict[int | str, dict[str, Any]] = {
        code: {"description": _PROBLEMS[code], "content": {MEDIA_TYPE: {"schema": _ref(Problem)}}} for code in failing
    }
    if kind is not None:
        shown = {"content": {_JSON: {"schema": _ref(kind)}}}
        responses[status] = {"description": _first_line(kind), **shown}
        if missing:
            responses[404] = {"description": _PROBLEMS[404], **shown}
    found: dict[str, Any] = {"response_model": None, "responses": responses, "status_code": status}
    if takes is not None:
        content = {_JSON: {"schema": _ref(takes)}}
        found["openapi_extra"] = {"requestBody": {"required": not optional, "content": content}}
    return found


def components() -> dict[str, Any]:
    """The schemas of every type that a route was described with."""
    _, found = msgspec.json.schema_components(_types.values(), ref_template="#/components/schemas/{name}")
    return found


def _ref(kind: type) -> dict[str, str]:
    known = _types.setdefault(kind.__name__, kind)
    assert known is kind, f"two types are called {kind.__name__}"
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _is_json(said: str) -> bool:
    media_type = said.partition(";")[0].strip().lower()
    return media_type == _JSON or media_type.endswith("+json")
