"""Who gives the events of a ledger to a process that only reads: chosen by the ledger's URL.

A reader is opened in the process that reads, on the driver to plan and on executors for each partition, and closed
again; nothing of it is carried from one to the other but the URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote, unquote, urlsplit

import msgspec

from noetl.adapters.sqlite.eventlog import Term
from noetl.errors import InvalidInput

__all__ = ["EventLog", "LogSpec", "Term", "open_log", "url_of_home"]

_SQLITE, _POSTGRES = "sqlite", ("postgresql", "postgres")
_LEDGER = "ledger.db"


class LogSpec(msgspec.Struct, frozen=True):
    """How a log is opened. The URL of a database may have a password in it: it is for processes, not for people."""

    url: str
    busy_timeout: float = 10.0


class EventLog(Protocol):
    """Events by position. A position is given once, and all below the head are there."""

    def head(self) -> int:
        """The position of the last committed event, 0 when there is none."""
        ...

    def checksum(self, position: int) -> str | None:
        """The checksum of the event at a position; None if there is none."""
        ...

    def checksums(self, after: int, to: int) -> Iterator[list[tuple[int, str]]]:
        """The positions in (after, to] and the checksums of their events, in any order and in pages.

        Of events that have gone to an archive the ledger has kept both, so they are among them.
        """
        ...

    def cuts(self, terms: Sequence[Term], after: int, to: int, every: int) -> list[int]:
        """The positions of every so-manieth event in (after, to] that the terms hold for."""
        ...

    def nth(self, terms: Sequence[Term], after: int, to: int, number: int) -> int | None:
        """The position of the so-manieth event in (after, to] that the terms hold for; None if there are fewer."""
        ...

    def other_columns(self) -> tuple[str, ...]:
        """Fields of events that this release knows nothing about."""
        ...

    def pages(
        self, columns: Sequence[str], terms: Sequence[Term], after: int, to: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Rows in order of position, in pages that fit into memory."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def url_of_home(home: Path) -> str:
    """The URL of the ledger that a home has."""
    return f"{_SQLITE}://{quote(str((home / _LEDGER).absolute()))}"


def open_log(spec: LogSpec) -> EventLog:
    """Open a log to be read. Raises InvalidInput for a URL that nobody here reads, and what its reader raises."""
    parts = urlsplit(spec.url)
    if parts.scheme == _SQLITE:
        from noetl.adapters.sqlite.eventlog import SqliteEventLog

        return SqliteEventLog(Path(unquote(parts.path)), busy_timeout=spec.busy_timeout)
    if parts.scheme in _POSTGRES or (not parts.scheme and "=" in spec.url):
        from noetl.adapters.postgres.eventlog import PostgresEventLog

        return PostgresEventLog(spec.url, patience=spec.busy_timeout)
    raise InvalidInput(f"the events of a ledger at {parts.scheme}:// cannot be read here", hint="name a home instead")
