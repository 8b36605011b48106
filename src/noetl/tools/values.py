"""Values on their way in and out of a tool: flags and durations as people write them, and rows as JSON."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from noetl.errors import InvalidSetting
from noetl.kernel.event import Json
from noetl.settings import parse_duration
from noetl.tools.base import Outcome, failed

__all__ = ["BadField", "Refused", "decoded_json", "number", "plain", "seconds", "truth"]

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0", ""})


class Refused(Exception):
    """A call that cannot begin; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__((outcome.error or {}).get("message"))
        self.outcome = outcome


class BadField(Refused):
    """A field that cannot be used as it is."""

    def __init__(self, message: str, *, kind: str = "schema", code: str = "FIELD_INVALID") -> None:
        super().__init__(failed(kind, code, message))


def truth(fields: Json, *names: str, default: bool) -> bool:
    """The first of these flags that is given. A template may have made text of it."""
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in _TRUE | _FALSE:
            raise BadField(f"{name} must be true or false, not '{value}'")
        return text in _TRUE
    return default


def seconds(fields: Json, *names: str, default: float) -> float:
    """The first of these durations that is given, in seconds."""
    for name in names:
        if (value := fields.get(name)) is None:
            continue
        try:
            found = float(parse_duration(value))
        except InvalidSetting as error:
            raise BadField(f"{name}: {error}") from None
        if found <= 0:
            raise BadField(f"{name} must be above 0, not '{value}'")
        return found
    return default


def number(text: str) -> int | float | str:
    """A decimal as a JSON number; as text where JSON has none: NaN, infinity, beyond a double."""
    try:
        if text.lstrip("+-").isdigit():
            return int(text)
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def decoded_json(text: bytes | str) -> Any:
    """The value of a JSON text, or the text itself if it is not one that we could write again."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def plain(value: Any) -> Any:
    """A value of a database as JSON: numbers, ISO text, lists and mappings; base64 for bytes."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return number(str(value))
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return _interval(value) if isinstance(value, timedelta) else str(value)


def _interval(value: timedelta) -> str:
    """As Postgres prints it: `3 days 04:05:06`."""
    if value.days < 0:
        return "-" + _interval(-value)
    days = f"{value.days} day{'s' if value.days != 1 else ''} " if value.days else ""
    clock = timedelta(seconds=value.seconds, microseconds=value.microseconds)
    return days + str(clock).zfill(8 if not clock.microseconds else 15)
