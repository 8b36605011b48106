"""Import and export: a log in a file, in whichever of the two formats."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.fold import State, apply, new_state
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import UpcasterRegistry

__all__ = ["FORMATS", "LogReader", "LogWriter", "checked", "open_log", "read_log"]

FORMATS = ("jsonl", "feather")
_ARROW_MAGIC = b"ARROW1"


class LogReader:
    """The events of a file, once, and the place of the one that was read last: `orders.jsonl:17`."""

    def __init__(self, placed: Iterator[tuple[str, Envelope]]) -> None:
        self._placed = placed
        self.place = ""

    def __iter__(self) -> Iterator[Envelope]:
        for place, event in self._placed:
            self.place = place
            yield event


def read_log(path: Path) -> LogReader:
    """The events of a file; its first bytes tell the format. Raises NotFound or InvalidInput.

    The first event is read at once, so that a file which is no log is refused before anything is opened for it.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_ARROW_MAGIC))
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    if not magic:
        raise InvalidInput(f"{path} is empty")
    if magic == _ARROW_MAGIC:
        from noetl.archive.feather import read_feather  # pyarrow is heavy, and JSON lines do not need it

        placed = read_feather(path)
    else:
        from noetl.archive.jsonl import read_jsonl

        placed = read_jsonl(path)
    first = next(placed, None)
    if first is None:
        raise InvalidInput(f"{path} has no events")
    return LogReader(itertools.chain([first], placed))


class LogWriter(Protocol):
    """A file that events are written to, some at a time."""

    def write(self, events: Iterable[Envelope]) -> None: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def open_log(path: Path, kind: str) -> Iterator[LogWriter]:
    """A log to write; the file appears under its name when it is complete, and not at all after an error.

    What exists and is no file (a pipe, a device) is written to as it is, never replaced.
    """
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder", hint="name a file in it")
    special = path.exists() and not path.is_file()
    target = path if special else path.resolve()
    draft = path if special else target.with_name(f".{target.name}.part")
    try:
        with contextlib.closing(_writer(draft, kind)) as writer:
            yield writer
        if not special:
            draft.replace(target)
    except OSError as error:
        hint = "check that the folder is there and the disk has room"
        raise Unavailable(f"cannot write {path}: {error.strerror or error}", hint=hint) from None
    finally:
        if not special:
            with contextlib.suppress(OSError):
                draft.unlink()


def checked(events: Iterable[Envelope], registry: UpcasterRegistry) -> Iterator[Envelope]:
    """The same events, refusing at once one that this release could store but not understand."""
    states: dict[Stream, State] = {}
    for event in events:
        root = Stream(event.tenant_id, root_of(event.stream_id))
        if root not in states:
            states[root] = new_state(root.stream_id)
        apply(states[root], registry.upcast(event))
        yield event


def _writer(path: Path, kind: str) -> LogWriter:
    if kind == "feather":
        from noetl.archive.feather import FeatherWriter

        return FeatherWriter(path)
    from noetl.archive.jsonl import JsonlWriter

    return JsonlWriter(path)
