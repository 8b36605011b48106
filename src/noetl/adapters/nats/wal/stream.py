"""The stream that holds the log: putting an append in if nobody was faster, looking at it, and reading it."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec
import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.pull import Pull, place_of
from noetl.adapters.nats.scan import open_scan
from noetl.adapters.nats.wal.messages import PREFIX, Message, read
from noetl.errors import Corruption, InvalidInput
from noetl.kernel.names import event_stream

__all__ = ["Moved", "Stored", "Tip", "WalStream"]

_WRONG_LAST = frozenset({10071, 10164})
_OTHER_CONFIGURATION, _OVERLAP, _NO_STREAM = 10058, 10065, 10059
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_STREAM = "Nats-Expected-Stream"
_BEGINS = "noetl-begins"
_ROOM = 64 * 1024
_PAGE = 500


class Moved(Exception):
    """The subject does not end where the writer thought: somebody was faster, or its first try has landed."""


class Tip(msgspec.Struct, frozen=True, kw_only=True):
    """Where the stream begins and ends now."""

    life: str
    first: int
    last: int
    holes: int
    """How many messages are missing between the two."""
    begins: int
    """The position that its table had when the log began."""


class Stored(NamedTuple):
    """A message as it is in the stream."""

    seq: int
    subject: str
    data: bytes
    headers: Mapping[str, str] | None
    time: datetime | None = None

    def message(self) -> Message:
        """The append that it is. Raises InvalidInput if it is none."""
        return read(self.subject, self.data, self.headers)


class WalStream:
    """One JetStream stream for the whole log, because the log has one order."""

    def __init__(self, connection: Connection, *, region: str = "local", replicas: int = 1) -> None:
        self.connection = connection
        self.name = event_stream(region, 0).replace("_EVT_", "_WAL_")
        self._replicas = replicas

    async def ensure(self, *, begins: int) -> Tip:
        """Make the stream if it is not there: nothing in it is ever dropped but by the materializer."""
        config = api.StreamConfig(
            name=self.name,
            subjects=[f"{PREFIX}.>"],
            storage=api.StorageType.FILE,
            retention=api.RetentionPolicy.LIMITS,
            discard=api.DiscardPolicy.NEW,
            num_replicas=self._replicas,
            allow_direct=True,
            deny_delete=True,
            metadata={_BEGINS: str(begins)},
        )
        with self.connection.explained(f"making stream {self.name}"):
            try:
                await self.connection.call(lambda streams: streams.add_stream(config))
            except nats.js.errors.APIError as error:
                await self._judge(error)
        return await self.tip()

    async def seal(self) -> None:
        """Take no more appends, for good."""
        with self.connection.explained(f"sealing stream {self.name}"):
            config = (await self.connection.call(functools.partial(_info, self.name))).config
            sealed = config.evolve(sealed=True)
            await self.connection.call(lambda streams: streams.update_stream(config=sealed))

    async def delete(self) -> None:
        """Delete the stream and all that is in it, if it is there."""
        with self.connection.explained(f"deleting stream {self.name}"):
            try:
                await self.connection.call(lambda streams: streams.delete_stream(self.name))
            except nats.js.errors.NotFoundError:
                return

    async def is_empty(self) -> bool:
        """Whether nobody has appended anything yet."""
        with self.connection.explained(f"looking at stream {self.name}"):
            try:
                info = await self.connection.call(functools.partial(_info, self.name))
            except nats.js.errors.NotFoundError:
                return True
        return not info.state.last_seq

    async def tip(self) -> Tip:
        """Where it ends now; everything that was acknowledged before this was asked is in it."""
        with self.connection.explained(f"looking at stream {self.name}"):
            try:
                info = await self.connection.call(functools.partial(_info, self.name))
            except nats.js.errors.NotFoundError as error:
                raise Corruption(
                    f"stream {self.name} of NATS at {self.connection.address}, which holds the log, is gone",
                    hint="restore the data of NATS from a backup",
                ) from error
        state = info.state
        return Tip(
            life="" if info.created is None else info.created.isoformat(),
            first=state.first_seq,
            last=state.last_seq,
            holes=state.num_deleted or 0,
            begins=int((info.config.metadata or {}).get(_BEGINS, "0")),
        )

    async def publish(self, message: Message, *, last: int | None) -> int:
        """Store an append if its subject still ends with `last`; where it is. Raises Moved, Unavailable.

        It may be sent twice, over two connections: of the two only one can find the subject as it was.
        """
        headers = {**message.headers, _STREAM: self.name}
        if last is not None:
            headers[_EXPECTED] = str(last)
        with self.connection.explained("appending to the log"):
            try:
                stored = await self.connection.call(functools.partial(_publish, message.subject, message.data, headers))
            except nats.js.errors.NoStreamResponseError as error:
                await self.tip()
                raise self.connection.gone("nobody takes appends") from error
            except nats.js.errors.APIError as error:
                if error.err_code in _WRONG_LAST:
                    raise Moved from error
                raise
        return stored.seq

    async def last_of(self, subject: str) -> int:
        """Where the last message of a subject is; 0 if there is none."""
        with self.connection.explained("looking for an append"):
            try:
                found = await self.connection.call(
                    lambda streams: streams.get_last_msg(self.name, subject, direct=False)
                )
            except nats.js.errors.NotFoundError:
                return 0
        return found.seq or 0

    async def get(self, seq: int) -> Stored | None:
        """A message by its number; None if it is not there any more."""
        with self.connection.explained("reading the log"):
            try:
                found = await self.connection.call(lambda streams: streams.get_msg(self.name, seq=seq, direct=False))
            except nats.js.errors.NotFoundError:
                return None
        return Stored(seq, found.subject or "", found.data or b"", found.headers, found.time)

    async def follow(self, after: int, wait: float) -> AsyncIterator[list[Stored]]:
        """What comes after a number, as it is stored; an empty page now and then while nothing does."""
        pull, _ = await open_scan(
            self.connection,
            self.name,
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
        )
        while True:
            yield await _page(pull, wait)

    async def purge(self, upto: int) -> None:
        """Drop everything up to a number, which must be in the table."""
        with self.connection.explained("dropping what is in the table"):
            await self.connection.call(lambda streams: streams.purge_stream(self.name, seq=upto + 1))

    @property
    def most_bytes(self) -> int:
        """How many bytes of events one message may hold."""
        return max(_ROOM, self.connection.client.max_payload - _ROOM)

    async def _judge(self, error: nats.js.errors.APIError) -> None:
        """A stream whose limits an operator has changed is fine, as long as it forgets nothing by itself."""
        if error.err_code == _OVERLAP:
            raise InvalidInput(
                f"another stream of NATS at {self.connection.address} has the subjects of {self.name} already",
                hint="place.region was another one when the log was begun; set it as it was",
            ) from error
        if error.err_code != _OTHER_CONFIGURATION:
            raise error
        found = (await self.connection.call(functools.partial(_info, self.name))).config
        limits = (found.max_age or 0, max(found.max_msgs or -1, -1), max(found.max_msgs_per_subject or -1, -1))
        if limits != (0, -1, -1) or found.storage != api.StorageType.FILE:
            raise InvalidInput(
                f"stream {self.name} of NATS at {self.connection.address} holds the log, but may forget it",
                hint="take away its limits of age and number, and keep it in files",
            ) from error


async def _page(pull: Pull, wait: float) -> list[Stored]:
    return [
        Stored(place_of(message.reply).seq, message.subject, message.data, message.headers)
        for message in await pull.fetch(_PAGE, wait)
    ]


async def _info(name: str, streams: JetStreamContext) -> api.StreamInfo:
    return await streams.stream_info(name)


async def _publish(subject: str, data: bytes, headers: dict[str, str], streams: JetStreamContext) -> api.PubAck:
    return await streams.publish(subject, data, headers=dict(headers))
