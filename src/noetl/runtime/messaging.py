"""Wiring of what needs NATS: from settings to the fabric, the queue and shared values."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from noetl.errors import InvalidInput
from noetl.ports.fabric import Fabric
from noetl.ports.kv import Kv
from noetl.ports.queue import CommandQueue
from noetl.replay.shares import Share, projected_to
from noetl.runtime.home import Home
from noetl.runtime.lost_commands import LostCommands
from noetl.runtime.marks import Marks
from noetl.runtime.nats import nats_client
from noetl.runtime.process import process_name
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.publishing import Publisher
from noetl.runtime.shards import ShardProjector
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.adapters.nats.streams import Topology

__all__ = ["Messaging", "open_messaging", "open_projector", "open_publisher"]

_MOST_ATTEMPTS = 100
"""What cannot be folded is given up at once; what is tried again waits for something that is away."""


class Messaging(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that goes through NATS."""

    address: str
    topology: Topology
    fabric: Fabric
    queue: CommandQueue
    kv: Kv


@contextlib.asynccontextmanager
async def open_messaging(settings: Settings, *, name: str) -> AsyncIterator[Messaging]:
    """Connect to the servers of `nats.url`, and make what is missing there.

    Raises InvalidInput if there is no address, Unavailable if nobody answers or the client is not installed.
    """
    url = settings.nats.url
    if url is None:
        raise InvalidInput(
            "there is no NATS to publish to: nats.url is not set",
            hint='set nats.url in noetl.toml, such as "nats://127.0.0.1:4222", or NOETL_NATS__URL',
        )
    with nats_client():
        from noetl.adapters.nats.connection import connect
        from noetl.adapters.nats.fabric import NatsFabric
        from noetl.adapters.nats.kv import NatsKv
        from noetl.adapters.nats.queue import NatsCommandQueue
        from noetl.adapters.nats.streams import Topology
    given = settings.nats
    topology = Topology(region=settings.place.region, streams=given.streams, replicas=given.replicas, keep=given.keep)
    async with connect(url, name=name, credentials=given.credentials, patience=given.patience) as connection:
        fabric = NatsFabric(connection, topology, codec=given.codec)
        await fabric.streams.ensure_events()
        yield Messaging(
            address=connection.address,
            topology=topology,
            fabric=fabric,
            queue=NatsCommandQueue(connection, topology),
            kv=NatsKv(connection, region=topology.region, replicas=topology.replicas),
        )


@contextlib.asynccontextmanager
async def open_publisher(
    home: Home, settings: Settings, *, batch: int = 1000, commands: bool = False
) -> AsyncIterator[tuple[Embedded, Publisher]]:
    """The publisher of a home's outbox; with `commands` it puts these into the queue, too."""
    name = process_name("outbox")
    async with open_messaging(settings, name=name) as messaging, open_embedded(home, settings, table=True) as embedded:

        async def floor() -> int:
            return await projected_to(embedded.projections, PROJECTOR)

        yield (
            embedded,
            Publisher(
                embedded.ledger,
                embedded.outbox,
                messaging.fabric,
                embedded.clock,
                name,
                marks=Marks(embedded.kv, keep_seconds=settings.nats.keep),
                floor=floor,
                queue=messaging.queue if commands else None,
                lost=_lost(embedded, messaging.queue, settings) if commands else None,
                batch=batch,
            ),
        )


def _lost(embedded: Embedded, queue: CommandQueue, settings: Settings) -> LostCommands:
    return LostCommands(
        embedded.ledger, embedded.outbox, embedded.projections, embedded.leases, queue, embedded.clock,
        patience=settings.server.lease,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def open_projector(
    home: Home, settings: Settings, share: Share, *, batch: int
) -> AsyncIterator[tuple[Embedded, ShardProjector]]:
    """The projector of a share of the shards, under its own name, whatever process it is."""
    given = settings.projector
    async with (
        open_messaging(settings, name=process_name(share.name)) as messaging,
        open_embedded(home, settings, table=True) as embedded,
    ):
        shards = None if share.count == 1 else share.shards
        consumer = await messaging.fabric.consumer(
            share.name, shards=shards, settle_within=given.settle, most_attempts=_MOST_ATTEMPTS
        )
        yield (
            embedded,
            ShardProjector(
                embedded.ledger,
                embedded.projections,
                consumer,
                embedded.registry,
                embedded.clock,
                share,
                batch=batch,
                settle_within=given.settle,
                snapshots=embedded.snapshots,
            ),
        )
