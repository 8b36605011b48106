"""From what came back to the result of the task, and from a status to an error (DSL 7.3, 9.2)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.tools.base import Outcome, failed
from noetl.tools.http.request import Request
from noetl.tools.values import decoded_json

__all__ = ["Answer", "LargeBody", "outcome_of", "parsed_body"]

_KEPT = 64
_KINDS = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}


class LargeBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that was too large to hold, in a file of the execution."""

    path: str
    bytes: int
    sha256: str
    content_type: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response that has been read to its end."""

    status: int
    reason: str
    headers: dict[str, str]
    url: str
    body: bytes | LargeBody
    charset: str | None
    elapsed: float


def outcome_of(answer: Answer, request: Request, now: Callable[[], datetime]) -> Outcome:
    """The raw result, and an error if the status is not one of success."""
    result: Json = {
        "status_code": answer.status,
        "headers": answer.headers,
        "url": answer.url,
        "elapsed": answer.elapsed,
    }
    if isinstance(answer.body, LargeBody):
        result["_file"] = msgspec.structs.asdict(answer.body)
    else:
        result["data"] = result["body"] = parsed_body(answer.body, answer.headers, answer.charset)
    extra: Json = {"http": {"status": answer.status, "headers": answer.headers}}
    if 200 <= answer.status <= 299:
        return Outcome(result=result, extra=extra)
    more: Json = {"status": answer.status, "status_code": answer.status}
    wait = _retry_after(answer.headers.get("retry-after"), now)
    if wait is not None:
        more["retry_after"] = wait
    message = f"{request.sent} answered {answer.status} {answer.reason or _phrase(answer.status)}".rstrip()
    return failed(_kind(answer.status), f"HTTP_{answer.status}", message, result=result, extra=extra, **more)


def parsed_body(body: bytes, headers: Json, charset: str | None) -> Any:
    """A value where the type is JSON and it parses, else text; none when there is nothing."""
    if not body:
        return None
    if not _is_json(str(headers.get("content-type", ""))):
        return _decoded(body, charset)
    if charset is None or charset.lower() == "utf-8":
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # with a byte order mark it may be JSON all the same
    return decoded_json(_decoded(body, charset))


@lru_cache(_KEPT)
def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media in ("application/json", "text/json") or media.endswith("+json")


def _decoded(body: bytes, charset: str | None) -> str:
    try:
        return body.decode(charset or "utf-8-sig", "replace")
    except LookupError:
        return body.decode("utf-8-sig", "replace")


def _kind(status: int) -> str:
    return _KINDS.get(status) or ("server_error" if status >= 500 else "client_error")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _retry_after(value: str | None, now: Callable[[], datetime]) -> int | None:
    """Seconds from a number or from a date; none if it is neither."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return int(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round((aware - now()).total_seconds()))
