"""The command queue on JetStream: a work queue, with one durable consumer for each pool."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from nats.aio.msg import Msg
from nats.js import api

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.letters import DeadLetters
from noetl.adapters.nats.pull import Pull, delay_text, place_of
from noetl.adapters.nats.streams import Streams, Topology, consumer_name
from noetl.adapters.nats.window import Outgoing, Refused, Window
from noetl.errors import Unavailable
from noetl.kernel.names import CommandSubject
from noetl.ports.fabric import DeadLetter
from noetl.ports.queue import Depth, LeasedCommand, QueuedCommand

__all__ = ["NatsCommandQueue"]

_MOST_LEASED = 10_000
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(QueuedCommand)


class NatsCommandQueue:
    """Commands by pool. A lease is JetStream's own wait for an acknowledgement."""

    def __init__(
        self,
        connection: Connection,
        topology: Topology | None = None,
        *,
        lease_seconds: float = 30.0,
        most_attempts: int = 10,
    ) -> None:
        self._connection = connection
        self._streams = Streams(connection, topology or Topology())
        self._stream = self._streams.topology.commands
        self._lease_seconds = lease_seconds
        self._most = most_attempts
        self._window = Window(connection)
        self._letters = DeadLetters(connection, self._streams, self._window)
        self._pulls: dict[str, Pull] = {}

    @property
    def lease_seconds(self) -> float:
        """How long a delivery stays with the one who got it."""
        return self._lease_seconds

    async def enqueue(self, commands: Sequence[QueuedCommand], *, again: bool = False) -> None:
        """Put commands in, under an id that says which event asked for them; `again` without one."""
        messages = [_message(command, named=not again) for command in commands]
        answers = await self._window.publish(messages)
        missing = [
            message
            for message, answer in zip(messages, answers, strict=True)
            if isinstance(answer, Refused) and answer.missing
        ]
        if missing:
            await self._streams.ensure(self._stream, again=True)
            known = [answer for answer in answers if not (isinstance(answer, Refused) and answer.missing)]
            answers = [*known, *await self._window.publish(missing)]
        refused = [answer for answer in answers if isinstance(answer, Refused)]
        if refused:
            raise Unavailable(
                f"NATS at {self._connection.address} has not taken {len(refused)} of {len(commands)} commands: "
                f"{refused[0].reason}",
                hint="put them in again; those it has are not stored twice",
            )

    async def has(self, command: QueuedCommand) -> bool:
        """Whether its subject has messages: one stays until it is acknowledged."""
        subject = _subject(command)
        await self._streams.ensure(self._stream, again=True)
        with self._connection.explained(f"looking for {subject}"):
            info = await self._connection.call(lambda streams: streams.stream_info(self._stream, subject))
        return bool(info.state.subjects)

    async def lease(self, pool: str, *, limit: int = 1, wait: float = 0.0) -> Sequence[LeasedCommand]:
        """The oldest commands of a pool. One that had to be waited for comes alone: its worker can begin."""
        if pool not in self._pulls:
            await self._make(pool)
            self._pulls[pool] = Pull(self._connection, self._stream, consumer_name(pool), lambda: self._make(pool))
        while messages := await self._pulls[pool].fetch(limit, wait, gather=False):
            if leased := await self._leased(messages, pool):
                return leased
        return []

    async def extend(self, leased: LeasedCommand) -> None:
        """Its time begins anew."""
        await self._answer(leased, b"+WPI")

    async def ack(self, leased: LeasedCommand) -> None:
        """It is done with."""
        await self._answer(leased, b"+ACK")

    async def nack(self, leased: LeasedCommand, *, delay: float = 0.0) -> None:
        """Deliver it again."""
        await self._answer(leased, delay_text(delay))

    async def depth(self, pool: str) -> Depth:
        """What a pool has to do."""
        await self._make(pool)
        with self._connection.explained(f"looking at pool {pool}"):
            info = await self._connection.call(lambda streams: streams.consumer_info(self._stream, consumer_name(pool)))
        return Depth(waiting=info.num_pending or 0, leased=info.num_ack_pending or 0)

    async def dead_letters(self, limit: int = 100) -> Sequence[DeadLetter]:
        """What was given up, of commands and of events."""
        return await self._letters.read(limit)

    async def close(self) -> None:
        """The connection belongs to whoever opened it."""

    async def _make(self, pool: str) -> None:
        await self._streams.ensure(self._stream, again=True)
        config = api.ConsumerConfig(
            durable_name=consumer_name(pool),
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=self._lease_seconds,
            max_deliver=-1,  # we count ourselves, so that what is given up can be kept with its reason
            max_ack_pending=_MOST_LEASED,
            filter_subject=_filter(pool),
        )
        with self._connection.explained(f"making the consumer of pool {pool}"):
            await self._connection.call(lambda streams: streams.add_consumer(self._stream, config))

    async def _leased(self, messages: list[Msg], pool: str) -> list[LeasedCommand]:
        found = []
        for message in messages:
            attempts = place_of(message.reply).attempts
            if attempts > self._most:
                reason = f"delivered {attempts - 1} times and never settled"
                await self._letters.bury(message, f"pool {pool}", reason, attempts=attempts - 1)
                continue
            try:
                command = _decoder.decode(message.data)
            except msgspec.MsgspecError as error:
                reason = f"the message is not a command: {error}"
                await self._letters.bury(message, f"pool {pool}", reason, attempts=attempts)
                continue
            found.append(LeasedCommand(command=command, attempts=attempts, token=message.reply))
        return found

    async def _answer(self, leased: LeasedCommand, text: bytes) -> None:
        await self._connection.ready()
        with self._connection.explained("settling a command"):
            await self._connection.client.publish(leased.token, text)
            await self._connection.flush()


def _subject(command: QueuedCommand) -> str:
    return str(CommandSubject(pool=command.pool, execution=command.execution_id))


def _message(command: QueuedCommand, *, named: bool) -> Outgoing:
    identity = f"{command.tenant_id}/{command.execution_id}/{command.event_id}"
    if command.round:
        identity += f"/{command.round}"
    names = {"Nats-Msg-Id": identity} if named else {}
    return Outgoing(_subject(command), _encoder.encode(command), {**names, **command.carrier})


def _filter(pool: str) -> str:
    return str(CommandSubject(pool=pool, execution=None)).removesuffix("-") + "*"
