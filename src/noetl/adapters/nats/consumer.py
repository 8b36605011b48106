"""A durable follower of events on JetStream."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Sequence

import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.letters import DeadLetters
from noetl.adapters.nats.messages import recorded_of
from noetl.adapters.nats.pull import Pull, delay_text, place_of
from noetl.adapters.nats.streams import Streams, consumer_name
from noetl.archive.wire import Codec, encode_event
from noetl.errors import InvalidInput
from noetl.observe import metrics
from noetl.ports.fabric import Delivery, Lag

__all__ = ["NatsConsumer"]

_LOOK_SECONDS = 0.05
_MOST_UNSETTLED = 20_000


class NatsConsumer:
    """One durable pull consumer on each stream that holds some of its shards, all of one name."""

    def __init__(
        self,
        connection: Connection,
        streams: Streams,
        letters: DeadLetters,
        name: str,
        *,
        shards: Collection[int] | None,
        settle_within: float,
        most_attempts: int,
        codec: Codec,
    ) -> None:
        self._connection = connection
        self._streams = streams
        self._letters = letters
        self._name = name
        self._durable = consumer_name(name)
        self._settle = settle_within
        self._most = most_attempts
        self._codec: Codec = codec
        topology = streams.topology
        self._filters = {stream: topology.filters(stream, shards) for stream in topology.events}
        self._pulls = {stream: self._pull(stream) for stream, own in self._filters.items() if shards is None or own}
        self._next = 0

    async def open(self) -> None:
        """Make it where it is not there yet. Raises InvalidInput if it follows other shards."""
        await self._connection.ready()
        for stream in self._pulls:
            await self._streams.ensure(stream, again=True)
            with self._connection.explained(f"making consumer {self._durable}"):
                await self._make(stream)

    async def fetch(self, limit: int = 500, *, wait: float = 0.0) -> Sequence[Delivery]:
        """What is due again and what is new, stream by stream in turn."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        alone = len(self._pulls) == 1
        while True:
            for _ in range(len(self._pulls)):
                pull = list(self._pulls.values())[self._next % len(self._pulls)]
                self._next += 1
                messages = await pull.fetch(limit, max(0.0, deadline - loop.time()) if alone else 0.0)
                if messages and (found := await self._deliveries(messages)):
                    return found
            left = deadline - loop.time()
            if left <= 0:
                return []
            await asyncio.sleep(0 if alone else min(left, _LOOK_SECONDS))

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """They are done with."""
        await self._answer(deliveries, b"+ACK")

    async def nak(self, deliveries: Sequence[Delivery], *, delay: float = 0.0) -> None:
        """Deliver them again."""
        await self._answer(deliveries, delay_text(delay))

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Their time begins anew."""
        await self._answer(deliveries, b"+WPI")

    async def term(self, delivery: Delivery, reason: str) -> None:
        """Never again."""
        message = Msg(
            _client=self._connection.client,
            subject=place_of(delivery.token).stream,
            reply=delivery.token,
            data=encode_event(delivery.item.event, self._codec),
        )
        await self._letters.bury(message, self._name, reason, attempts=delivery.attempts)
        await self._flush()

    async def lag(self) -> Lag:
        """How far behind it is, over all its streams."""
        waiting = unsettled = 0
        for stream in self._pulls:
            with self._connection.explained(f"looking at consumer {self._durable}"):
                info = await self._connection.call(functools.partial(self._info, stream))
            waiting += info.num_pending or 0
            unsettled += info.num_ack_pending or 0
        return Lag(waiting=waiting, unsettled=unsettled)

    async def close(self) -> None:
        """JetStream remembers where it was."""

    def _pull(self, stream: str) -> Pull:
        async def remake() -> None:
            await self._streams.ensure(stream, again=True)
            with self._connection.explained(f"making consumer {self._durable}"):
                await self._make(stream)

        return Pull(self._connection, stream, self._durable, remake)

    async def _make(self, stream: str) -> None:
        wanted = self._filters[stream]
        try:
            found = await self._connection.call(functools.partial(self._info, stream))
        except nats.js.errors.NotFoundError:
            pass
        else:
            only = [found.config.filter_subject] if found.config.filter_subject else []
            if set(found.config.filter_subjects or only) != set(wanted):
                raise InvalidInput(
                    f"consumer '{self._name}' of stream {stream} follows other shards than those asked for",
                    hint="use another name for another share of the shards",
                )
        config = api.ConsumerConfig(
            durable_name=self._durable,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=self._settle,
            max_deliver=-1,  # we count ourselves, so that what is given up can be kept with its reason
            max_ack_pending=_MOST_UNSETTLED,
            filter_subjects=wanted or None,
        )
        await self._connection.call(lambda streams: streams.add_consumer(stream, config))

    async def _info(self, stream: str, streams: JetStreamContext) -> api.ConsumerInfo:
        info: api.ConsumerInfo = await streams.consumer_info(stream, self._durable)
        return info

    async def _deliveries(self, messages: list[Msg]) -> list[Delivery]:
        found = []
        for message in messages:
            attempts = place_of(message.reply).attempts
            if attempts > self._most:
                reason = f"delivered {attempts - 1} times and never settled"
                await self._letters.bury(message, self._name, reason, attempts=attempts - 1)
                continue
            try:
                item = recorded_of(message)
            except InvalidInput as error:
                metrics.count("noetl_fabric_undecodable_total")
                await self._letters.bury(message, self._name, error.message, attempts=attempts)
                continue
            found.append(Delivery(item=item, attempts=attempts, token=message.reply))
        return found

    async def _answer(self, deliveries: Sequence[Delivery], text: bytes) -> None:
        await self._connection.ready()
        with self._connection.explained("settling events"):
            for delivery in deliveries:
                await self._connection.client.publish(delivery.token, text)
        await self._flush()

    async def _flush(self) -> None:
        with self._connection.explained("settling events"):
            await self._connection.flush()
