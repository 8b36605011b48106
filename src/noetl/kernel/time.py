"""Moments as microseconds since 1970, and as the one text form that events carry."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from noetl.errors import InvalidInput

__all__ = ["format_time", "is_canonical_time", "parse_time"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the same moment; arithmetic without a zone prints faster
_CANONICAL = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d\.\d{6}Z", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)


def format_time(micros: int) -> str:
    """`2026-05-16T12:34:56.789000Z`: always six digits and `Z`, so that text order is time order."""
    seconds, rest = divmod(micros, 1_000_000)
    return f"{_to_the_second(seconds)}.{rest:06d}Z"


@lru_cache(maxsize=64)
def _to_the_second(seconds: int) -> str:
    return (_NAIVE_EPOCH + timedelta(seconds=seconds)).isoformat()


def parse_time(text: str) -> int:
    """Microseconds of any ISO 8601 moment; one without an offset is taken as UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            f"'{text}' is not an ISO 8601 time", hint="write it like 2026-05-16T12:34:56Z, in UTC or with an offset"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def is_canonical_time(text: str) -> bool:
    """True for a real moment in exactly the form that `format_time` prints."""
    if not _CANONICAL.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
