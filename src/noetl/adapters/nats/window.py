"""Publishing without waiting for each acknowledgement, but never with more than so many outstanding."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import msgspec
import nats.errors
from nats.aio.msg import Msg

from noetl.adapters.nats.connection import Connection

__all__ = ["MISSING", "Acknowledged", "Outgoing", "Refused", "Window"]

_NO_RESPONDERS = "503"
MISSING = "no stream takes this subject"


class Outgoing(msgspec.Struct, frozen=True):
    """A message to publish."""

    subject: str
    data: bytes
    headers: dict[str, str]


class Acknowledged(msgspec.Struct, frozen=True):
    """Where a message was stored. `duplicate`: its id was known, and nothing was stored now."""

    stream: str
    seq: int
    duplicate: bool = False


class Refused(msgspec.Struct, frozen=True):
    """Why a message was not acknowledged. `missing`: there is no stream for it."""

    reason: str
    missing: bool = False


class _Error(msgspec.Struct):
    description: str = "no reason given"
    err_code: int = 0


class _Answer(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: _Error | None = None


_answers = msgspec.json.Decoder(_Answer)


class Window:
    """One inbox for all acknowledgements of a process."""

    def __init__(self, connection: Connection, limit: int = 512) -> None:
        self._connection = connection
        self._limit = limit
        self._inbox = ""
        self._opening = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[Acknowledged | Refused]] = {}
        self._room = asyncio.Event()
        self._numbers = itertools.count(1)
        connection.on_lost.append(self._lose)

    async def publish(self, messages: Sequence[Outgoing]) -> list[Acknowledged | Refused]:
        """What became of each message, in their order. Raises Unavailable if there is no connection to begin with."""
        if not messages:
            return []
        await self._connection.ready()
        await self._open()
        sent: list[tuple[str, asyncio.Future[Acknowledged | Refused]]] = []
        loop, stuck = asyncio.get_running_loop(), False
        for message in messages:
            token, future = str(next(self._numbers)), loop.create_future()
            sent.append((token, future))
            stuck = stuck or not await self._has_room() or self._connection.lost.is_set()
            if stuck:
                future.set_result(Refused("those before it were not acknowledged"))
                continue
            self._waiting[token] = future
            try:
                await self._connection.client.publish(
                    message.subject, message.data, reply=f"{self._inbox}{token}", headers=message.headers
                )
            except (nats.errors.Error, OSError) as error:
                if not future.done():
                    future.set_result(Refused(str(error).removeprefix("nats: ") or type(error).__name__))
                self._waiting.pop(token, None)
        return await self._answers_to(sent)

    async def _answers_to(
        self, sent: list[tuple[str, asyncio.Future[Acknowledged | Refused]]]
    ) -> list[Acknowledged | Refused]:
        try:
            await asyncio.wait([future for _, future in sent], timeout=self._connection.timeout)
        finally:
            for token, _ in sent:
                self._waiting.pop(token, None)
            self._room.set()
        late = Refused(f"{self._late} before it was acknowledged")
        return [future.result() if future.done() else late for _, future in sent]

    def _lose(self) -> None:
        """The connection is lost, and with it every acknowledgement that was on its way."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(Refused("the connection was lost before it was acknowledged"))
        self._room.set()

    @property
    def _late(self) -> str:
        return f"{self._connection.timeout:g} s have passed"

    async def _open(self) -> None:
        if self._inbox:
            return
        async with self._opening:
            if not self._inbox:
                inbox = f"{self._connection.client.new_inbox()}."
                with self._connection.explained("publishing"):
                    await self._connection.client.subscribe(f"{inbox}*", cb=self._answered)
                self._inbox = inbox

    async def _has_room(self) -> bool:
        """Wait while too much is outstanding; False if nothing comes back."""
        while len(self._waiting) >= self._limit:
            self._room.clear()
            try:
                async with asyncio.timeout(self._connection.timeout):
                    await self._room.wait()
            except TimeoutError:
                return False
        return True

    async def _answered(self, message: Msg) -> None:
        future = self._waiting.pop(message.subject[len(self._inbox) :], None)
        if len(self._waiting) < self._limit:
            self._room.set()
        if future is not None and not future.done():
            future.set_result(_read(message))


def _read(message: Msg) -> Acknowledged | Refused:
    if not message.data and message.headers and message.headers.get("Status") == _NO_RESPONDERS:
        return Refused(MISSING, missing=True)
    try:
        answer = _answers.decode(message.data)
    except msgspec.MsgspecError as error:
        return Refused(f"the answer cannot be read: {error}")
    if answer.error is not None:
        return Refused(answer.error.description)
    return Acknowledged(answer.stream, answer.seq, answer.duplicate)
