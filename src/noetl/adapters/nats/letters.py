"""Dead letters: what was given up, with the reason, kept in a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, unquote

from nats.aio.msg import Msg

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.pull import place_of
from noetl.adapters.nats.scan import scan
from noetl.adapters.nats.streams import DEAD, Streams
from noetl.adapters.nats.window import Acknowledged, Outgoing, Window
from noetl.errors import Unavailable
from noetl.observe import metrics
from noetl.ports.fabric import DeadLetter

__all__ = ["DeadLetters"]

_REASON, _SUBJECT, _CONSUMER, _ATTEMPTS = "Noetl-Reason", "Noetl-Subject", "Noetl-Consumer", "Noetl-Attempts"
_MOST_REASON = 2000
TERM = b"+TERM"


class DeadLetters:
    """A letter is stored before its message is given up, so whoever dies in between writes it once more."""

    def __init__(self, connection: Connection, streams: Streams, window: Window) -> None:
        self._connection = connection
        self._streams = streams
        self._window = window

    async def bury(self, message: Msg, consumer: str, reason: str, *, attempts: int) -> None:
        """Keep a message with the reason, and never deliver it to that consumer again."""
        place = place_of(message.reply)
        headers = {
            **{name: value for name, value in (message.headers or {}).items() if name.startswith("Noetl-")},
            # A stream that was wiped counts from 1 again, so the number alone would not tell two messages apart.
            "Nats-Msg-Id": f"{place.stream}:{place.consumer}:{place.seq}:{place.time}",
            _REASON: quote(reason[:_MOST_REASON]),
            _SUBJECT: message.subject,
            _CONSUMER: quote(consumer),
            _ATTEMPTS: str(attempts),
        }
        await self._streams.ensure(self._streams.topology.dead_letters)
        letter = Outgoing(f"{DEAD}.{place.consumer}", message.data, headers)
        (answer,) = await self._window.publish([letter])
        if not isinstance(answer, Acknowledged) and answer.missing:
            await self._streams.ensure(self._streams.topology.dead_letters, again=True)
            (answer,) = await self._window.publish([letter])
        if not isinstance(answer, Acknowledged):
            raise Unavailable(
                f"NATS at {self._connection.address} does not take a dead letter of {consumer}: {answer.reason}",
                hint="the message stays where it is, and is tried again",
            )
        with self._connection.explained("giving up a message"):
            await self._connection.client.publish(message.reply, TERM)
        metrics.count("noetl_dead_letters_total", place.stream.split("_")[1])

    async def read(self, limit: int) -> Sequence[DeadLetter]:
        """The oldest letters."""
        stream = self._streams.topology.dead_letters
        await self._streams.ensure(stream, again=True)
        letters: list[DeadLetter] = []
        async for message in scan(self._connection, stream):
            if len(letters) == limit:
                break
            letters.append(_letter(message))
        return letters


def _letter(message: Msg) -> DeadLetter:
    headers = message.headers or {}
    return DeadLetter(
        subject=headers.get(_SUBJECT, ""),
        reason=unquote(headers.get(_REASON, "")),
        consumer=unquote(headers.get(_CONSUMER, "")),
        attempts=int(headers.get(_ATTEMPTS, "0")),
        data=message.data,
    )
