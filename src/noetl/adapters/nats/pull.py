"""Taking messages from a consumer, and settling them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.msg import Msg

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.inboxes import NoAnswer

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
        self._is_dry = False
        """Whether there was nothing more when it was last asked."""

    async def fetch(self, limit: int, wait: float, *, gather: bool = True) -> list[Msg]:
        """Up to `limit` messages; waits for the first one only.

        With `gather` whatever came together with that one is brought along, which takes a question more. Who may wait
        does so at once where the last message has said that there is none after it; then one comes before the others.
        """
        with self._connection.explained(self._what):
            if wait <= 0 or not self._is_dry:
                found = await self._ask(_Request(batch=limit, no_wait=True), self._connection.timeout)
                if found or wait <= 0:
                    return found
            found = await self._first(wait)
            if found and gather and limit > 1:
                found += await self._ask(_Request(batch=limit - 1, no_wait=True), self._connection.timeout)
            return found

    async def _first(self, wait: float) -> list[Msg]:
        """The next message, as soon as there is one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while (left := deadline - loop.time()) > 0:
            try:
                if found := await self._ask(_Request(batch=1, expires=max(1, int(left * _NANOS))), left):
                    return found
            except nats.errors.TimeoutError:
                self._is_dry = False  # whoever says nothing is to be asked what has to be answered
        return []

    async def _ask(self, request: _Request, patience: float) -> list[Msg]:
        for _ in range(2):
            # The server says when a request is over; half a second later it never will.
            status, found = await self._answer(request, patience + 0.5)
            if found or status not in _MISSING:
                self._is_dry = not found or place_of(found[-1].reply).pending == 0
                return found
            await self._remake()
        return []

    async def _answer(self, request: _Request, patience: float) -> tuple[str | None, list[Msg]]:
        """What the server says; asked again if the connection is lost meanwhile, until time is up.

        Raises nats' TimeoutError, and Unavailable if the connection does not come back.
        """
        asked, deadline = msgspec.json.encode(request), asyncio.get_running_loop().time() + patience
        while True:
            await self._connection.ready()
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._connection.inboxes.ask(self._subject, asked, request.batch)
            except NoAnswer:
                continue
            except TimeoutError:
                raise nats.errors.TimeoutError from None


def delay_text(delay: float) -> bytes:
    """A refusal with a delay, as JetStream reads it."""
    nanos = math.ceil(delay * _NANOS)
    return b"-NAK" if nanos <= 0 else b'-NAK {"delay": %d}' % nanos
