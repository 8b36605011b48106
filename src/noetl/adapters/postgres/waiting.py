"""A connection that asks the event loop only for what is worth waiting for."""

from __future__ import annotations

import select
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

__all__ = ["EagerConnection"]

T = TypeVar("T")


class EagerConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """Sends without a turn of the event loop wherever there is room for what is sent, which is nearly always.

    The client asks the loop before every statement of a pipeline whether the server can take it. That was a third of
    what an append cost this process.
    """

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Consume a generator that operates on the connection."""
        return await super().wait(_eager(gen, self.pgconn.socket), *args, **options)


def _eager(gen: PQGen[T], fileno: int) -> PQGen[T]:
    """The same generator, which only yields what cannot go on at once."""
    try:
        wanted = next(gen)
        while True:
            ready = _ready(fileno, wanted) if wanted & Wait.W else Ready.NONE
            wanted = gen.send(ready or (yield wanted))
    except StopIteration as end:
        found: T = end.value
        return found


def _ready(fileno: int, wanted: int) -> int:
    """What of it is possible now. A connection that is lost can be read and written: then that is found out."""
    now = select.poll()
    now.register(fileno, select.POLLIN | select.POLLOUT)
    ready = 0
    for _, state in now.poll(0):
        ready = (Ready.R if state & ~select.POLLOUT else 0) | (Ready.W if state & ~select.POLLIN else 0)
    return ready & wanted
