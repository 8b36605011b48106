"""The options of a reader, understood. One that nobody knows is refused: it was meant to change what is read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from noetl.data.source.locators import DatasetLocator, EventsLocator, KeptLocator, Locator, read_locator
from noetl.errors import InvalidInput

__all__ = ["ALL_TENANTS", "EventOptions", "Options", "read_options"]

ALL_TENANTS = "*"
_ANYWHERE = ("path", "locator", "home", "tenant", "project")
_EVENTS = ("fromPosition", "toPosition", "types", "executionId", "rowsPerPartition", "maxRowsPerTrigger",
           "maxPositionsPerTrigger")  # fmt: skip
_KEPT = ("lineage",)
_ROWS_PER_PARTITION = 50_000
LATEST = "latest"


class EventOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which events, and how many at a time. Positions count from 1, and both ends are read."""

    first: int | None = 1
    """None for what comes after the moment in which a stream begins."""
    last: int | None = None
    types: tuple[str, ...] = ()
    execution_id: int | None = None
    rows_per_partition: int = _ROWS_PER_PARTITION
    rows_per_trigger: int | None = None
    positions_per_trigger: int | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader was asked for."""

    locator: Locator
    home: str | None = None
    tenant: str | None = None
    project: str | None = None
    events: EventOptions = EventOptions()
    lineage: bool = False


def read_options(given: Mapping[str, str]) -> Options:
    """Understand the options of a reader, whose names are the same in any case. Raises InvalidInput."""
    said = {name.lower(): value for name, value in given.items()}
    locator = _locator(said)
    _check_names(said, locator)
    return Options(
        locator=locator,
        home=said.get("home"),
        tenant=_tenant(said.get("tenant"), locator),
        project=said.get("project"),
        events=_events(said, locator) if isinstance(locator, EventsLocator) else EventOptions(),
        lineage=_flag("lineage", said.get("lineage", "false")),
    )


def _locator(said: Mapping[str, str]) -> Locator:
    path, named = said.get("path"), said.get("locator")
    if path is not None and named is not None and path != named:
        raise InvalidInput(f"both '{path}' and '{named}' are named to be read", hint="name one, in load(...)")
    return read_locator(path or named or "")


def _check_names(said: Mapping[str, str], locator: Locator) -> None:
    fitting = (*_ANYWHERE, *(_EVENTS if isinstance(locator, EventsLocator) else _KEPT))
    every = {name.lower(): name for name in (*_ANYWHERE, *_EVENTS, *_KEPT)}
    for name in said:
        if name in {one.lower() for one in fitting}:
            continue
        if name in every:
            what = {EventsLocator: "events", DatasetLocator: "a dataset", KeptLocator: "a result"}[type(locator)]
            raise InvalidInput(f"option {every[name]} means nothing for {what}", hint=f"options: {', '.join(fitting)}")
        close = difflib.get_close_matches(name, every, 1)
        hint = f"did you mean {every[close[0]]}?" if close else f"options: {', '.join(fitting)}"
        raise InvalidInput(f"there is no option '{name}'", hint=hint)


def _tenant(said: str | None, locator: Locator) -> str | None:
    named = locator.tenant if isinstance(locator, EventsLocator) else None
    if said is not None and named is not None and said != named:
        raise InvalidInput(f"the address is of tenant '{named}', and option tenant says '{said}'", hint="leave one out")
    if said == ALL_TENANTS and not isinstance(locator, EventsLocator):
        raise InvalidInput("only events can be read of all tenants at once", hint="name one tenant")
    return said or named


def _events(said: Mapping[str, str], locator: EventsLocator) -> EventOptions:
    first, last = said.get("fromposition", "1"), said.get("toposition")
    execution, asked = locator.execution_id, said.get("executionid")
    if asked is not None:
        number = _count("executionId", asked)
        if execution not in (None, number):
            raise InvalidInput(f"the locator names execution {execution}, executionId {number}", hint="leave one out")
        execution = number
    begin = None if first == LATEST else _count("fromPosition", first)
    end = None if last is None else _count("toPosition", last)
    if begin is not None and end is not None and end < begin:
        raise InvalidInput(f"toPosition {end} comes before fromPosition {begin}", hint="both are read; exchange them")
    return EventOptions(
        first=begin,
        last=end,
        types=tuple(name.strip() for name in said.get("types", "").split(",") if name.strip()),
        execution_id=execution,
        rows_per_partition=_count("rowsPerPartition", said.get("rowsperpartition", str(_ROWS_PER_PARTITION))),
        rows_per_trigger=_optional("maxRowsPerTrigger", said),
        positions_per_trigger=_optional("maxPositionsPerTrigger", said),
    )


def _optional(name: str, said: Mapping[str, str]) -> int | None:
    value = said.get(name.lower())
    return None if value is None else _count(name, value)


def _count(name: str, value: str) -> int:
    if not value.strip().isdecimal() or int(value) < 1:
        more = " or latest" if name == "fromPosition" else ""
        raise InvalidInput(f"option {name}: '{value}' is not a whole number of at least 1{more}")
    return int(value)


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidInput(f"option {name}: '{value}' is not true or false")
    return value.lower() == "true"
