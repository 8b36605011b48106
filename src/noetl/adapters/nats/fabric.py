"""The fabric on JetStream."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime

import nats.js.errors
from nats.js import JetStreamContext, api

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.consumer import NatsConsumer
from noetl.adapters.nats.letters import DeadLetters
from noetl.adapters.nats.messages import CHECKSUM, POSITION, position_of
from noetl.adapters.nats.scan import scan
from noetl.adapters.nats.streams import Streams, Topology
from noetl.adapters.nats.window import MISSING, Acknowledged, Outgoing, Window
from noetl.archive.wire import Codec, encode_event
from noetl.errors import NoetlError
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.names import EventSubject
from noetl.kernel.time import parse_time
from noetl.ports.fabric import DeadLetter, Published, StreamTail, shard_of_event

__all__ = ["NatsFabric"]

_LOOKS_AT_ONCE = 32
_TRIES = 5
_MICROS = 1_000_000
_Message = tuple[Recorded, Outgoing]


class NatsFabric:
    """Publishes events under their ids and hands them out to durable consumers."""

    def __init__(
        self, connection: Connection, topology: Topology | None = None, *, codec: Codec = "json", window: int = 512
    ) -> None:
        self._connection = connection
        self.streams = Streams(connection, topology or Topology())
        self._codec: Codec = codec
        self._window = Window(connection, window)
        self._letters = DeadLetters(connection, self.streams, self._window)
        self._highest: dict[str, int] = {}
        self._lost = 0

    async def publish(self, items: Sequence[Recorded]) -> Published:
        """Hand events over; an id that JetStream knows is only believed if the event is really there."""
        refused: dict[int, str] = {}
        messages: list[_Message] = []
        for item in items:
            try:
                messages.append((item, self._message(item)))
            except NoetlError as error:
                refused[item.position] = error.message
        taken = await self._send(messages, refused)
        if items and not taken and self._connection.lost.is_set():
            raise self._connection.gone("the connection was lost")
        return Published(taken=[item.position for item in items if item.position in taken], refused=refused)

    async def _send(self, messages: list[_Message], refused: dict[int, str]) -> set[int]:
        """The positions that were taken; what has to be sent once more is, under another id or into a new stream."""
        taken: set[int] = set()
        for _ in range(_TRIES):
            known: list[tuple[_Message, Acknowledged]] = []
            again: list[_Message] = []
            answers = await self._window.publish([message for _, message in messages])
            for message, answer in zip(messages, answers, strict=True):
                if isinstance(answer, Acknowledged):
                    known.append((message, answer))
                elif answer.missing:
                    again.append(message)
                else:
                    refused[message[0].position] = answer.reason
            for stream in {self._stream_of(item) for item, _ in again}:
                await self.streams.ensure(stream, again=True)
            there = await self._are_there(known)
            for ((item, outgoing), answer), is_there in zip(known, there, strict=True):
                if is_there:
                    taken.add(item.position)
                else:
                    again.append((item, _renamed(outgoing, answer.seq)))
            messages = again
            if not messages:
                break
        refused.update({item.position: MISSING for item, _ in messages})
        return taken

    async def _are_there(self, known: list[tuple[_Message, Acknowledged]]) -> list[bool]:
        """Of what JetStream says it knows, whether it has it: it may be purged, cut off, or another of the same id."""
        looking = asyncio.Semaphore(_LOOKS_AT_ONCE)

        async def is_there(item: Recorded, answer: Acknowledged) -> bool:
            async with looking:
                try:
                    found = await self._connection.call(
                        lambda streams: streams.get_msg(answer.stream, seq=answer.seq, direct=True)
                    )
                except nats.js.errors.NotFoundError:
                    return False
            return (found.headers or {}).get(CHECKSUM) == item.event.envelope_checksum

        found = [True] * len(known)
        doubtful = []
        for place, (_, answer) in enumerate(known):
            if answer.duplicate:
                doubtful.append(place)
            else:
                self._notice(answer)
        with self._connection.explained("looking for an event"):
            looks = await asyncio.gather(*(is_there(known[place][0][0], known[place][1]) for place in doubtful))
        for place, is_known in zip(doubtful, looks, strict=True):
            found[place] = is_known
        return found

    def _notice(self, answer: Acknowledged) -> None:
        """A number that was given before: the stream has lost its end since."""
        if answer.seq <= self._highest.get(answer.stream, 0):
            self._lost += 1
        self._highest[answer.stream] = answer.seq

    def _message(self, item: Recorded) -> Outgoing:
        event = item.event
        return Outgoing(
            _subject(event.tenant_id, event.organization_id, event.execution_id, shard_of_event(event)),
            encode_event(event, self._codec),
            {
                **_traced(event),
                "Nats-Msg-Id": str(event.event_id),
                POSITION: str(item.position),
                CHECKSUM: event.envelope_checksum,
                "Noetl-Codec": self._codec,
            },
        )

    def _stream_of(self, item: Recorded) -> str:
        return self.streams.topology.stream_of(shard_of_event(item.event))

    async def consumer(
        self,
        name: str,
        *,
        shards: Collection[int] | None = None,
        settle_within: float = 30.0,
        most_attempts: int = 10,
    ) -> NatsConsumer:
        """The consumer of that name, one on each stream that has shards for it."""
        consumer = NatsConsumer(
            self._connection,
            self.streams,
            self._letters,
            name,
            shards=shards,
            settle_within=settle_within,
            most_attempts=most_attempts,
            codec=self._codec,
        )
        await consumer.open()
        return consumer

    async def tails(self) -> Sequence[StreamTail]:
        """Where every stream begins and ends."""
        found = []
        for name in self.streams.topology.events:
            await self.streams.ensure(name, again=True)
            with self._connection.explained(f"looking at stream {name}"):
                info = await self._connection.call(functools.partial(_info, name))
            born = "" if info.created is None else info.created.isoformat()
            state = info.state
            found.append(
                StreamTail(
                    name=name,
                    life=f"{born}/{self._connection.lives}/{self._lost}",
                    first=state.first_seq,
                    last=state.last_seq,
                    messages=state.messages,
                )
            )
        return found

    async def positions(self, *, since: str) -> AsyncIterator[int]:
        """What is in the streams, by the headers alone."""
        start = datetime.fromtimestamp(parse_time(since) / _MICROS, UTC)
        for name in self.streams.topology.events:
            await self.streams.ensure(name, again=True)
            async for message in scan(self._connection, name, since=start, headers_only=True):
                position = position_of(message)
                if position is not None:
                    yield position

    async def dead_letters(self, limit: int = 100) -> Sequence[DeadLetter]:
        """What was given up."""
        return await self._letters.read(limit)

    async def close(self) -> None:
        """The connection belongs to whoever opened it."""


async def _info(name: str, streams: JetStreamContext) -> api.StreamInfo:
    return await streams.stream_info(name)


@functools.lru_cache(8192)
def _subject(tenant: str, org: str, execution: int | None, shard: int) -> str:
    return str(EventSubject(tenant=tenant, org=org, execution=execution, shard=shard))


def _renamed(message: Outgoing, taken_by: int) -> Outgoing:
    """The same event under an id that says where the one before is taken: whoever finds the same uses the same."""
    headers = {**message.headers, "Nats-Msg-Id": f"{message.headers['Nats-Msg-Id']}.{taken_by}"}
    return Outgoing(message.subject, message.data, headers)


def _traced(event: Envelope) -> dict[str, str]:
    """Where an event is in a trace, as headers that others understand."""
    trace = event.meta.get("trace")
    return {name: trace[name] for name in ("traceparent", "tracestate") if name in trace} if trace else {}
