"""Who projects what, and how far all of it has come.

Either one projector follows the whole log, or several have a share of the shards each. Shares are known by the names
under which they leave their checkpoints, so whoever reads rows need not be told how many there are.
"""

from __future__ import annotations

import re
import socket

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.names import SHARD_COUNT
from noetl.ports.projections import ProjectionStore

__all__ = ["Progress", "Share", "parse_share", "progress_of", "projected_to"]

_NAME = re.compile(r"projector-(\d+)-of-(\d+)", re.ASCII)
_OWN = "host"


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One of `count` equal shares of the logical shards."""

    index: int
    count: int

    @property
    def name(self) -> str:
        """What the share's consumer and checkpoint are called, after every restart."""
        return f"projector-{self.index}-of-{self.count}"

    @property
    def shards(self) -> range:
        """Its shards."""
        return range(self.index, SHARD_COUNT, self.count)


def parse_share(text: str, *, host: str | None = None) -> Share:
    """`0/4`: the first of four; `host/4`: the one whose number this machine's name ends with.

    Raises InvalidInput for a share that would own nothing.
    """
    index, slash, count = text.partition("/")
    if index == _OWN and slash:
        index = _number_of(socket.gethostname() if host is None else host)
    if not (slash and index.isascii() and index.isdecimal() and count.isascii() and count.isdecimal()):
        raise InvalidInput(f"'{text}' is not a share", hint="write it as i/n, such as 0/4, or as host/n")
    share = Share(index=int(index), count=int(count))
    if not 1 <= share.count <= SHARD_COUNT or share.index >= share.count:
        raise InvalidInput(
            f"'{text}' is a share that owns nothing"
            + (f": this machine's number is {share.index}" if text.startswith(_OWN) else ""),
            hint=f"n is from 1 to {SHARD_COUNT}, and i from 0 to n - 1",
        )
    return share


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the rows of all roots have come together, and whether single roots may be further."""

    position: int
    is_shared: bool


async def progress_of(projections: ProjectionStore, projector: str) -> Progress:
    """What the checkpoints say.

    A projector of the whole log says how far it is itself; of shares it is the slowest of a complete set. Sets that
    nobody runs any more stay where they were.
    """
    found = await projections.checkpoints()
    sets: dict[int, dict[int, int]] = {}
    for name, position in found.items():
        if told := _NAME.fullmatch(name):
            index, count = int(told[1]), int(told[2])
            if index < count:
                sets.setdefault(count, {})[index] = position
    complete = [min(own.values()) for count, own in sets.items() if len(own) == count]
    return Progress(position=max([found.get(projector, 0), *complete]), is_shared=bool(sets))


async def projected_to(projections: ProjectionStore, projector: str) -> int:
    """The position up to which the rows of all roots are there."""
    return (await progress_of(projections, projector)).position


def _number_of(host: str) -> str:
    """The number at the end of a machine's name, as a stateful set gives it."""
    found = re.search(r"-(\d+)$", host.partition(".")[0], re.ASCII)
    if found is None:
        raise InvalidInput(
            f"this machine's name, '{host}', does not end with a number", hint="write the share as i/n, such as 0/4"
        )
    return found[1]
