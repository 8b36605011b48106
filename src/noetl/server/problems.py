"""Errors as problem details (RFC 9457): what is wrong, in the caller's words, and never our insides."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from noetl.errors import (
    Conflict,
    Corruption,
    Forbidden,
    InvalidDocument,
    InvalidInput,
    NoetlError,
    NotFound,
    QuotaExceeded,
    StorageFull,
    Unauthenticated,
    Unavailable,
)

__all__ = ["MEDIA_TYPE", "DocumentFault", "Malformed", "Problem", "install", "problem_of", "respond"]

MEDIA_TYPE = "application/problem+json"

_log = logging.getLogger("noetl.server")


class Malformed(InvalidInput):
    """A body that is not what its media type says."""


class DocumentFault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a document, at its place."""

    code: str
    severity: str
    message: str
    line: int | None = None
    column: int | None = None
    hint: str | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem details object. `problems` is there for documents, `limit` and what follows it for quotas."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    problems: list[DocumentFault] | None = None
    limit: str | None = None
    value: int | None = None
    retry_after: int | None = None


# The first branch that an error belongs to decides.
_STATUSES: tuple[tuple[type[NoetlError], HTTPStatus], ...] = (
    (Malformed, HTTPStatus.BAD_REQUEST),
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (InvalidInput, HTTPStatus.UNPROCESSABLE_ENTITY),
    (QuotaExceeded, HTTPStatus.TOO_MANY_REQUESTS),
    (StorageFull, HTTPStatus.INSUFFICIENT_STORAGE),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)
_HEADERS = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}
_WINDOW = 60
_INSIDE = "something went wrong on our side; the server's log has it"


def problem_of(error: Exception) -> Problem:
    """An error as its caller may see it. What is our own fault is not spelled out."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    if not isinstance(error, NoetlError) or status == HTTPStatus.INTERNAL_SERVER_ERROR:
        damaged = "stored data is not what was written; noetl verify --all names it" * isinstance(error, Corruption)
        return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", damaged or _INSIDE)
    found: dict[str, Any] = {"hint": error.hint}
    if isinstance(error, InvalidDocument):
        found["problems"] = _faults(error)
    elif isinstance(error, QuotaExceeded):
        found |= {"limit": error.limit, "value": error.value, "retry_after": error.retry_after}
    return _problem(status, type(error).__name__, error.message, **found)


def respond(error: Exception) -> Response:
    """The answer to a request that failed like this."""
    problem = problem_of(error)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("a request failed", exc_info=error)
    return _answer(problem, _headers(problem))


def _headers(problem: Problem) -> dict[str, str] | None:
    """What a caller's library understands without reading the problem; for limits, the RateLimit fields of HTTP."""
    if problem.limit is None:
        return _HEADERS.get(HTTPStatus(problem.status))
    rate = f";w={_WINDOW}" * problem.limit.endswith("_per_minute")
    return {
        "Retry-After": str(problem.retry_after),
        "RateLimit-Policy": f'"{problem.limit}";q={problem.value}{rate}',
        "RateLimit": f'"{problem.limit}";r=0;t={problem.retry_after}',
    }


def install(app: FastAPI) -> None:
    """Answer every error of an application as a problem."""
    app.add_exception_handler(NoetlError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_error)


async def _on_error(_: Request, error: Exception) -> Response:
    return respond(error)


async def _on_validation(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found: list[dict[str, Any]] = list(error.errors())
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    if any(one["type"] == "json_invalid" for one in found):
        return _answer(_problem(HTTPStatus.BAD_REQUEST, "Malformed", "the body is not JSON"))
    said = "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in found[:5])
    return _answer(_problem(status, "InvalidInput", said))


async def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    said = str(error.detail) if error.detail else status.phrase
    return _answer(_problem(status, status.phrase.replace(" ", ""), said), error.headers)


def _problem(status: HTTPStatus, kind: str, detail: str, **more: Any) -> Problem:
    return Problem(type=f"urn:noetl:problem:{kind}", title=status.phrase, status=status.value, detail=detail, **more)


def _answer(problem: Problem, headers: Any = None) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)


def _faults(error: InvalidDocument) -> list[DocumentFault]:
    return [_fault(one) for one in error.problems]


def _fault(problem: object) -> DocumentFault:
    if not isinstance(problem, msgspec.Struct):
        return DocumentFault(code="INVALID", severity="error", message=str(problem))
    said = msgspec.to_builtins(problem)
    fields = {name: said[name] for name in DocumentFault.__struct_fields__ if name in said}
    return msgspec.convert(fields, DocumentFault, strict=False)
