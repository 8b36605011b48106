"""The servers of an installation, as a worker sees them: any of them does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from noetl.errors import InvalidInput
from noetl.runtime.stages.connections import Connections

__all__ = ["AGAIN", "NO_ANSWER", "Servers"]

AGAIN = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""Answers of a server that cannot be of use now, although another one may be."""
NO_ANSWER = (OSError, EOFError, ValueError, KeyError, asyncio.LimitOverrunError)
_ANSWER_SECONDS = 60.0
_SHORTER_SECONDS = 15.0
"""How long one of several servers may take; one that was paused keeps its connections open."""


class Servers:
    """Asks one server for as long as it answers, and then the next one."""

    def __init__(self, urls: Sequence[str], headers: dict[str, str]) -> None:
        """Raises InvalidInput for what is no address, and if there is none."""
        if not urls:
            raise InvalidInput("there is no server to work for", hint="name one with --server")
        self._all = [Connections(url, headers) for url in urls]
        self._at = 0
        self._seconds = _ANSWER_SECONDS if len(urls) == 1 else _SHORTER_SECONDS

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the first answer that is of use, else of the last one; each server is asked once.

        Raises one of `NO_ANSWER` if the last one has none.
        """
        first = self._at
        for turn in range(len(self._all)):
            at = (first + turn) % len(self._all)
            is_last = turn == len(self._all) - 1
            try:
                async with asyncio.timeout(self._seconds):
                    status, answer = await self._all[at].post(path, body)
                if status not in AGAIN or is_last:
                    return status, answer
            except NO_ANSWER:
                if is_last:
                    self._leave(at)
                    raise
            self._leave(at)
        raise AssertionError("the last one has answered, or has raised")

    def _leave(self, at: int) -> None:
        """Begin with the next one from now on, unless somebody has moved on already."""
        if self._at == at:
            self._at = (at + 1) % len(self._all)

    async def close(self) -> None:
        """Let go of the connections."""
        for one in self._all:
            await one.close()
