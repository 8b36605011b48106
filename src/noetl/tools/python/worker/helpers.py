"""Small things that task code finds bound, so that it need not bring them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noetl.tools.python.worker.values import make_serializable

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["deep_merge", "format_iso8601", "get_val", "make_serializable", "now_utc"]


def get_val(mapping: Any, path: str, default: Any = None) -> Any:
    """What is at a dotted path, lists by index: `get_val(order, "lines.0.sku", "none")`."""
    for key in path.split("."):
        try:
            mapping = mapping[key] if isinstance(mapping, Mapping) else mapping[int(key)]
        except (KeyError, IndexError, TypeError, ValueError):
            return default
    return mapping


def now_utc() -> datetime:
    """The time, with its zone."""
    import datetime

    return datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 - the interpreter may be older than ours


def format_iso8601(moment: datetime | None = None) -> str:
    """A time, by default now, as UTC text; a time without zone is taken as UTC."""
    import datetime

    moment = moment or now_utc()
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)  # noqa: UP017
    return moment.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")  # noqa: UP017


def deep_merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """A new mapping with the keys of both; the overlay wins, and mappings on both sides are merged in turn."""
    merged = dict(base)
    for key, value in overlay.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = deep_merge(below, value) if both else value  # type: ignore[arg-type] # both are mappings
    return merged
