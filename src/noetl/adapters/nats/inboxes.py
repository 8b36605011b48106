"""Inboxes for requests that several messages may answer: subscribed to once, and used again and again.

Whoever waits for work asks every few seconds, and again after every message. To subscribe for each of these questions,
and to leave again before the answer is looked at, takes longer than the answer.
"""

from __future__ import annotations

import asyncio
import itertools

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

__all__ = ["Inboxes", "NoAnswer"]

_ALIVE = "100"
_LOST = "lost"
"""No status of NATS, which are numbers."""


class NoAnswer(Exception):
    """The connection was lost, and with it the answer."""


class Inboxes:
    """Of one connection. A request has an inbox for itself until it is over."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._idle: list[_Inbox] = []
        self._asking: set[_Inbox] = set()

    async def ask(self, subject: str, data: bytes, most: int) -> tuple[str | None, list[Msg]]:
        """The messages that answer a request, and the status that has ended it before there were `most` of them.

        Raises NoAnswer if the connection is lost meanwhile. Whoever stops waiting leaves the inbox: what comes too
        late for it is delivered again when its time is up.
        """
        inbox = self._idle.pop() if self._idle else _Inbox(self._client)
        self._asking.add(inbox)
        is_over = False
        try:
            answer = await inbox.ask(subject, data, most)
            is_over = True
            return answer
        finally:
            self._asking.discard(inbox)
            if is_over:
                self._idle.append(inbox)
            else:
                await inbox.leave()

    def lose(self) -> None:
        """The connection is lost: nobody answers any more what is being asked. Subscriptions come back with it."""
        for inbox in self._asking:
            inbox.lose()


class _Inbox:
    """One subscription. Each request has an address of its own below it, so that the end of one is not the next one's.

    A message of a stream keeps the subject it was published with, and says nothing of the request that it answers.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._root = f"{client.new_inbox()}."
        self._numbers = itertools.count(1)
        self._subscription: Subscription | None = None
        self._address = ""
        self._found: list[Msg] = []
        self._most = 0
        self._over: asyncio.Future[str | None] | None = None

    async def ask(self, subject: str, data: bytes, most: int) -> tuple[str | None, list[Msg]]:
        self._address, self._most = f"{self._root}{next(self._numbers)}", most
        found: list[Msg] = []
        over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._found, self._over = found, over
        try:
            if self._subscription is None:
                self._subscription = await self._client.subscribe(f"{self._root}*", cb=self._take)
            await self._client.publish(subject, data, reply=self._address)
            status = await over
        finally:
            self._found, self._over = [], None
        if status == _LOST:
            raise NoAnswer
        return status, found

    def lose(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(_LOST)

    async def leave(self) -> None:
        if self._subscription is None:
            return
        try:
            await self._subscription.unsubscribe()
        except (nats.errors.Error, OSError):
            return  # the subscription went with its connection

    async def _take(self, message: Msg) -> None:
        if self._over is None or self._over.done():
            return
        status = message.headers.get("Status") if message.headers and not message.reply else None
        if status is None:
            self._found.append(message)
        elif status == _ALIVE or message.subject != self._address:
            return
        if status is not None or len(self._found) == self._most:
            self._over.set_result(status)
