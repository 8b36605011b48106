"""Taking messages from a consumer, and settling them."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.msg import Msg

from noetl.adapters.nats.connection import Connection

__all__ = ["Place", "Pull", "delay_text", "place_of"]

_NANOS = 1_000_000_000
_MISSING = frozenset({"503", "409"})  # nobody serves that consumer; or it was deleted while we waited
_SHORT = 9  # tokens of a reply subject without a domain


class _Request(msgspec.Struct, omit_defaults=True):
    batch: int
    expires: int = 0
    no_wait: bool = False


class Place(msgspec.Struct, frozen=True):
    """What a reply subject says of a delivery."""

    stream: str
    consumer: str
    attempts: int
    seq: int
    time: str
    pending: int


def place_of(reply: str) -> Place:
    """Read a reply subject, with or without the tokens of a domain in it."""
    tokens = reply.split(".")
    fields = tokens[2:] if len(tokens) == _SHORT else tokens[4:]
    stream, consumer, attempts, seq, _, time, pending, *_ = fields
    return Place(stream, consumer, int(attempts), int(seq), time, int(pending))


class Pull:
    """The messages of one consumer. `remake` brings back a stream or consumer that somebody has deleted."""

    def __init__(
        self, connection: Connection, stream: str, consumer: str, remake: Callable[[], Awaitable[None]]
    ) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._remake = remake
        self._what = f"fetching from {stream} as {consumer}"

    async def fetch(self, limit: int, wait: float, *, gather: bool = True) -> list[Msg]:
        """Up to `limit` messages; waits for the first one only.

        With `gather` whatever came together with that one is brought along, which takes a question more.
        """
        with self._connection.explained(self._what):
            found = await self._ask(_Request(batch=limit, no_wait=True), self._connection.timeout)
            if found or wait <= 0:
                return found
            loop = asyncio.get_running_loop()
            deadline = loop.time() + wait
            while not found and (left := deadline - loop.time()) > 0:
                with contextlib.suppress(nats.errors.TimeoutError):
                    found = await self._ask(_Request(batch=1, expires=max(1, int(left * _NANOS))), left)
            if found and gather and limit > 1:
                found += await self._ask(_Request(batch=limit - 1, no_wait=True), self._connection.timeout)
            return found

    async def _ask(self, request: _Request, patience: float) -> list[Msg]:
        for _ in range(2):
            # The server says when a request is over; half a second later it never will.
            answer = await self._connection.call(lambda _: self._request(request), patience + 0.5)
            if answer is not None:
                return answer
            await self._remake()
        return []

    async def _request(self, request: _Request) -> list[Msg] | None:
        """One request in an inbox of its own: what comes too late for it is delivered again when its time is up.

        None when nobody serves that consumer.
        """
        client = self._connection.client
        found: list[Msg] = []
        over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        async def on_message(message: Msg) -> None:
            status = message.headers.get("Status") if message.headers and not message.reply else None
            if status is None:
                found.append(message)
            if (status not in (None, "100") or len(found) == request.batch) and not over.done():
                over.set_result(status)

        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, cb=on_message)
        try:
            await client.publish(self._subject, msgspec.json.encode(request), reply=inbox)
            status = await over
        finally:
            await _leave(subscription.unsubscribe)
        return None if status in _MISSING and not found else found


async def _leave(unsubscribe: Callable[[], Awaitable[None]]) -> None:
    try:
        await unsubscribe()
    except (nats.errors.Error, OSError):
        return  # the subscription went with its connection


def delay_text(delay: float) -> bytes:
    """A refusal with a delay, as JetStream reads it."""
    nanos = math.ceil(delay * _NANOS)
    return b"-NAK" if nanos <= 0 else b'-NAK {"delay": %d}' % nanos
