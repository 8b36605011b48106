"""What a reader asks for: events, a dataset, or something that was kept, by a short locator or a whole address.

| locator | what it names |
|---|---|
| `events`, `events/<execution>` | the log, or the events of one execution |
| `datasets/<name>` | a dataset of the project |
| `results/<execution>/<step>` | what the last run of a step has returned |
| `noetl://...` | the same by address, and a payload by its digest |
"""

from __future__ import annotations

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.names import LegacyResult, PayloadName, ResourceName, ResultName, parse
from noetl.kernel.names.segments import encode

__all__ = ["DatasetLocator", "EventsLocator", "KeptLocator", "Locator", "read_locator"]

_EVENTS, _DATASETS, _RESULTS = "events", "datasets", "results"
_HINT = "write events, events/<execution>, datasets/<name>, results/<execution>/<step>, or a noetl:// address"


class EventsLocator(msgspec.Struct, frozen=True):
    """Events of the ledger."""

    execution_id: int | None = None
    tenant: str | None = None


class DatasetLocator(msgspec.Struct, frozen=True):
    """The files of a dataset."""

    name: str
    """Its address, or its kind and path."""


class KeptLocator(msgspec.Struct, frozen=True):
    """A result or a payload, by an address that the runtime follows."""

    uri: str


Locator = EventsLocator | DatasetLocator | KeptLocator


def read_locator(text: str) -> Locator:
    """What a text names. Raises InvalidInput."""
    if not text.strip("/ "):
        raise InvalidInput("nothing is named to be read", hint=_HINT)
    if "://" in text:
        return _address(text)
    kind, _, rest = text.strip("/").partition("/")
    if kind == _EVENTS:
        return EventsLocator(_execution(rest) if rest else None)
    if kind == _RESULTS:
        execution, _, step = rest.partition("/")
        if not step:
            raise InvalidInput(f"'{text}' names no step", hint="write results/<execution>/<step>")
        _execution(execution)
        return KeptLocator(f"noetl://execution/{execution}/result/{encode(step)}/last")
    if kind == _DATASETS and rest:
        return DatasetLocator(text.strip("/"))
    raise InvalidInput(f"'{text}' is not something that can be read", hint=_HINT)


def _address(text: str) -> Locator:
    name = parse(text)
    match name:
        case ResultName() | PayloadName() | LegacyResult():
            return KeptLocator(text)
        case ResourceName(kind="events"):
            if len(name.path) != 1 or name.version is not None:
                raise InvalidInput(
                    f"'{text}' names no events", hint="write noetl://<tenant>/<project>/events/<execution>"
                )
            return EventsLocator(_execution(name.path[0]), name.tenant)
        case ResourceName(version=None):
            return DatasetLocator(text)
        case ResourceName():
            raise InvalidInput(f"'{text}' has a version, and datasets are kept without", hint="leave out the @")
    raise InvalidInput(f"'{text}' names a place, not something that can be read", hint=_HINT)


def _execution(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInput(f"'{text}' is not the id of an execution", hint="noetl list shows the ones there are")
    return int(text)
