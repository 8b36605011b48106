"""Reading a stream through, beside its consumers: nothing is acknowledged, and nothing is remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from nats.aio.msg import Msg
from nats.js import api

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.pull import Pull, place_of
from noetl.errors import Unavailable

__all__ = ["open_scan", "scan"]

_PAGE = 1000
_FORGET_SECONDS = 30.0


async def scan(
    connection: Connection,
    stream: str,
    *,
    since: datetime | None = None,
    headers_only: bool = False,
) -> AsyncIterator[Msg]:
    """Every message that is in a stream now, oldest first, or those since a time."""
    start: dict[str, Any] = {}
    if since is not None:
        start = {"deliver_policy": api.DeliverPolicy.BY_START_TIME, "opt_start_time": since}
    pull, left = await open_scan(connection, stream, headers_only=headers_only, **start)
    while left > 0:
        page = await pull.fetch(min(_PAGE, left), connection.timeout)
        if not page:
            raise Unavailable(
                f"NATS at {connection.address} has stopped giving stream {stream}, {left} messages before its end"
            )
        for message in page:
            yield message
        left = min(left - len(page), place_of(page[-1].reply).pending)


async def open_scan(connection: Connection, stream: str, **config: Any) -> tuple[Pull, int]:
    """A consumer that is forgotten soon after it is not asked any more, and how many messages it has to give."""
    wanted = api.ConsumerConfig(
        ack_policy=api.AckPolicy.NONE,
        mem_storage=True,
        inactive_threshold=_FORGET_SECONDS,
        num_replicas=1,
        **config,
    )
    with connection.explained(f"reading stream {stream}"):
        made = await connection.call(lambda streams: streams.add_consumer(stream, wanted))

    async def gone() -> None:
        raise Unavailable(f"NATS at {connection.address} has lost its place in stream {stream}")

    return Pull(connection, stream, made.name, gone), made.num_pending or 0
