"""Kinds of value that settings have: how each is read, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NewType

from noetl.errors import InvalidSetting
from noetl.units import Bytes, Seconds, format_duration, format_size, parse_duration, parse_size, quoted

__all__ = [
    "KINDS", "Amount", "Auth", "Codec", "DatabaseUrl", "Kind", "LedgerMode", "Price", "StagesKept", "parse_price",
]  # fmt: skip

Auth = Literal["none", "token"]
Codec = Literal["json", "feather"]
LedgerMode = Literal["direct", "wal"]
StagesKept = Literal["auto", "server", "workers"]
DatabaseUrl = NewType("DatabaseUrl", str)
Price = NewType("Price", float)
Amount = NewType("Amount", int)
"""A whole number that may be 0, for nothing."""

_MOST_MONEY = 1e9
_DATABASE_HINT = "write it as postgresql://user:password@host:5432/database, or as host=... dbname=..."


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSetting(f"expected text, found {quoted(value)}", hint=f'write it in quotes: "{value}"')
    if not value.strip():
        raise InvalidSetting("expected text, found nothing", hint="remove the key to use its default")
    return value


def _parse_count(value: object) -> int:
    number = value
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidSetting(f"expected a whole number of at least 1, found {quoted(value)}")
    return number


def parse_price(value: object) -> Price:
    """An amount of money, from 0 on and with nine places at most. Raises InvalidSetting."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number < _MOST_MONEY or round(number, 9) != number:
        raise InvalidSetting(
            f"expected a price of at least 0, found {quoted(value)}",
            hint="write it as 0.0012, with nine places at most",
        )
    return Price(number)


def _show_price(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


def _parse_amount(value: object) -> Amount:
    if str(value) == "0" and not isinstance(value, float):
        return Amount(0)
    try:
        return Amount(_parse_count(value))
    except InvalidSetting:
        raise InvalidSetting(f"expected a whole number of at least 0, found {quoted(value)}") from None


def _parse_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise InvalidSetting(f"expected true or false, found {quoted(value)}")


def _parse_texts(value: object) -> tuple[str, ...]:
    """A list of texts; in the environment they stand behind each other, with commas between them."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list):
        raise InvalidSetting(f"expected a list of texts, found {quoted(value)}", hint='write it as ["a", "b"]')
    return tuple(_parse_text(item) for item in value)


def _parse_stages(value: object) -> StagesKept:
    match value:
        case "auto" | "server" | "workers":
            return value
    raise InvalidSetting(
        f"expected auto, server or workers, found {quoted(value)}", hint="auto takes workers where there are some"
    )


def _parse_auth(value: object) -> Auth:
    match value:
        case "none" | "token":
            return value
    raise InvalidSetting(f"expected none or token, found {quoted(value)}")


def _parse_codec(value: object) -> Codec:
    match value:
        case "json" | "feather":
            return value
    raise InvalidSetting(f"expected json or feather, found {quoted(value)}")


def _parse_mode(value: object) -> LedgerMode:
    match value:
        case "direct" | "wal":
            return value
    raise InvalidSetting(f"expected direct or wal, found {quoted(value)}")


def _parse_database(value: object) -> DatabaseUrl:
    text = _parse_text(value)
    if "://" in text and not text.startswith(("postgresql://", "postgres://")):
        kind = text.partition("://")[0]
        raise InvalidSetting(f"expected the address of a Postgres database, found one of {kind}", hint=_DATABASE_HINT)
    if "://" not in text and "=" not in text:
        raise InvalidSetting("expected the address of a Postgres database", hint=_DATABASE_HINT)
    return DatabaseUrl(text)


def _show_database(value: str | None) -> str:
    """An address without its password."""
    text = re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", value or "")
    return re.sub(r"(password\s*=\s*)('(?:\\.|[^'])*'|[^\s&]+)", r"\1***", text)


class Kind(NamedTuple):
    """One of them."""

    parse: Callable[[object], object]
    show: Callable[[Any], str]
    private: bool = False
    """Whether only what `show` makes of it may be shown."""


KINDS: dict[object, Kind] = {
    str: Kind(_parse_text, str),
    str | None: Kind(_parse_text, lambda value: "" if value is None else value),
    DatabaseUrl | None: Kind(_parse_database, _show_database, private=True),
    int: Kind(_parse_count, str),
    Amount: Kind(_parse_amount, str),
    Bytes: Kind(parse_size, format_size),
    Price: Kind(parse_price, _show_price),
    Seconds: Kind(parse_duration, format_duration),
    bool: Kind(_parse_flag, lambda value: "true" if value else "false"),
    int | None: Kind(_parse_count, lambda value: "" if value is None else str(value)),
    Seconds | None: Kind(parse_duration, lambda value: "" if value is None else format_duration(value)),
    Auth: Kind(_parse_auth, str),
    StagesKept: Kind(_parse_stages, str),
    Codec: Kind(_parse_codec, str),
    LedgerMode: Kind(_parse_mode, str),
    tuple[str, ...]: Kind(_parse_texts, ", ".join),
}
