"""What a server refuses, as the error that the same call gives here."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from noetl import errors
from noetl.errors import InvalidDocument, InvalidInput, NoetlError
from noetl.playbook.problems import Problem

__all__ = ["error_of"]

_BY_STATUS: dict[int, type[NoetlError]] = {
    400: InvalidInput,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: InvalidInput,
    409: errors.Conflict,
    413: InvalidInput,
    422: InvalidInput,
    507: errors.StorageFull,
}
_LATER = frozenset({408, 425, 429})
_SHOWN = 300


def error_of(status: int, answer: bytes, url: str) -> NoetlError:
    """The error that problem details (RFC 9457) stand for; the status decides where they say no more."""
    document = _document(answer)
    said = (
        document.get("detail")
        or document.get("message")
        or document.get("title")
        or answer[:_SHOWN].decode(errors="replace").strip()
    )
    hint = document.get("hint")
    if isinstance(document.get("problems"), list):
        return InvalidDocument([_problem(one) for one in document["problems"]])
    if status in _LATER or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in _BY_STATUS):
        return errors.Unavailable(f"{url} answered {status}: {said}", hint=hint or "try again later")
    kind = _kind(document.get("type")) or _BY_STATUS.get(status, InvalidInput)
    if kind in (errors.Unauthenticated, errors.Forbidden):
        said = f"{url}: {said}"
        hint = hint or "give another token"
    return kind(str(said) or f"{url} answered {status}", hint=hint if isinstance(hint, str) else None)


def _document(answer: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _kind(name: object) -> type[NoetlError] | None:
    """The class that a problem type names, unless making one takes more than a message."""
    found = getattr(errors, str(name).rpartition(":")[2], None)
    plain = isinstance(found, type) and issubclass(found, NoetlError) and "__init__" not in vars(found)
    return found if plain else None


def _problem(said: object) -> object:
    try:
        return msgspec.convert({"file": "<document>", **said} if isinstance(said, dict) else said, Problem)
    except msgspec.ValidationError:
        return said.get("message", said) if isinstance(said, dict) else said
