"""The streams of a region: what they are called, what goes into them, and how they are made.

A region has 256 logical shards. As many event streams as wanted hold equal ranges of them, each named by the first of
its range, so that one stream is enough for a laptop and every shard can have its own. Commands and dead letters have
one stream each: a command's subject says its pool and its execution, not its shard.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import Any

import msgspec
import nats.js.errors
from nats.js import api

from noetl.adapters.nats.connection import Connection
from noetl.errors import InvalidInput
from noetl.kernel.names import SHARD_COUNT, command_stream, dead_letter_stream, event_stream, shard_label

__all__ = ["DEAD", "Streams", "Topology", "consumer_name"]

DEAD = "noetl.dead"
_EVENTS, _COMMANDS = "noetl.events", "noetl.commands"
_OTHER_CONFIGURATION = 10058
_OVERLAP = 10065
_DUPLICATES_SECONDS = 120.0
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = "x_"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How the streams of a region are cut and kept."""

    region: str = "local"
    streams: int = 1
    """How many streams hold the events; a power of two up to 256."""
    replicas: int = 1
    keep: float = 7 * 24 * 3600.0
    """How many seconds events and dead letters stay in their streams."""

    def __post_init__(self) -> None:
        if self.streams < 1 or SHARD_COUNT % self.streams:
            raise InvalidInput(
                f"{self.streams} event streams cannot share {SHARD_COUNT} shards equally",
                hint="use a power of two from 1 to 256",
            )

    @property
    def commands(self) -> str:
        """The stream of commands."""
        return command_stream(self.region, 0)

    @property
    def dead_letters(self) -> str:
        """The stream of what was given up."""
        return dead_letter_stream(self.region, 0)

    @property
    def events(self) -> list[str]:
        """The streams of events."""
        return [event_stream(self.region, first) for first in range(0, SHARD_COUNT, self.width)]

    @property
    def width(self) -> int:
        """How many shards one event stream holds."""
        return SHARD_COUNT // self.streams

    def stream_of(self, shard: int) -> str:
        """The stream that holds a shard."""
        return event_stream(self.region, shard - shard % self.width)

    def filters(self, stream: str, shards: Collection[int] | None) -> list[str]:
        """The subjects of these shards in a stream; empty for all that is in it."""
        if shards is None:
            return []
        return [_of_shard(shard) for shard in sorted(set(shards)) if self.stream_of(shard) == stream]

    def subjects(self, stream: str) -> list[str]:
        """What goes into an event stream."""
        if self.streams == 1:
            return [f"{_EVENTS}.>"]
        own = [shard for shard in range(SHARD_COUNT) if self.stream_of(shard) == stream]
        return [subject for shard in own for subject in (_of_shard(shard), f"{_of_shard(shard)}.sparse")]


def _of_shard(shard: int) -> str:
    return f"{_EVENTS}.*.*.*.{shard_label(shard)}"


def consumer_name(text: str) -> str:
    """A name that NATS takes, the same for the same text and no other."""
    if _PLAIN.fullmatch(text) and not text.startswith(_ESCAPED):
        return text
    return _ESCAPED + "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):x}_" for char in text)


class Streams:
    """Makes streams when they are first needed, and again when somebody has deleted them."""

    def __init__(self, connection: Connection, topology: Topology) -> None:
        self._connection = connection
        self.topology = topology
        self._made: set[str] = set()
        self._making = asyncio.Lock()

    async def ensure(self, name: str, *, again: bool = False) -> None:
        """Return once a stream is there; `again` for one that is said to be missing."""
        if name in self._made and not again:
            return
        async with self._making:
            with self._connection.explained(f"making stream {name}"):
                try:
                    await self._connection.call(lambda streams: streams.add_stream(self._config(name)))
                except nats.js.errors.APIError as error:
                    await self._judge(name, error)
        self._made.add(name)

    async def ensure_events(self) -> None:
        """Every stream of events."""
        for name in self.topology.events:
            await self.ensure(name)

    def _config(self, name: str) -> api.StreamConfig:
        topology = self.topology
        common: dict[str, Any] = {
            "name": name,
            "storage": api.StorageType.FILE,
            "num_replicas": topology.replicas,
            "duplicate_window": _DUPLICATES_SECONDS,
            "allow_direct": True,
        }
        if name == topology.commands:
            return api.StreamConfig(subjects=[f"{_COMMANDS}.>"], retention=api.RetentionPolicy.WORK_QUEUE, **common)
        subjects = [f"{DEAD}.>"] if name == topology.dead_letters else topology.subjects(name)
        return api.StreamConfig(
            subjects=subjects, retention=api.RetentionPolicy.LIMITS, max_age=topology.keep, **common
        )

    async def _judge(self, name: str, error: nats.js.errors.APIError) -> None:
        """A stream whose limits an operator has changed is fine; one that holds something else is not."""
        if error.err_code == _OVERLAP:
            raise InvalidInput(
                f"another stream of NATS at {self._connection.address} has the subjects of {name} already",
                hint="its region or its number of streams differs (place.region, nats.streams); "
                "delete the old streams, and noetl outbox fills the new ones from the ledger",
            ) from error
        if error.err_code != _OTHER_CONFIGURATION:
            raise error
        wanted = self._config(name)
        found = (await self._connection.call(lambda streams: streams.stream_info(name))).config
        if set(found.subjects or ()) != set(wanted.subjects or ()) or found.retention != wanted.retention:
            raise InvalidInput(
                f"stream {name} of NATS at {self._connection.address} holds other subjects or keeps them differently",
                hint="delete it, and noetl outbox fills it from the ledger; or set nats.streams as it was",
            ) from error
