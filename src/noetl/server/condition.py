"""What a server can see of the installation it belongs to: what works, and what does not."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from noetl.errors import NoetlError
from noetl.runtime.condition import heard
from noetl.runtime.remote.roster import Roster
from noetl.runtime.service import Services

__all__ = ["Condition", "Trouble"]

_ANSWER_SECONDS = 2.0
_FRESH_SECONDS = 1.0

_log = logging.getLogger("noetl.server")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A part that does not work as it should, and what that means. Anybody may see it, so it names no address."""

    part: str
    problem: str


_LEDGER = Trouble(part="ledger", problem="does not answer; nothing can be started, and what runs waits")
_NOBODY = {
    "publisher": Trouble(part="publisher", problem="is away; commands do not reach workers (noetl outbox --commands)"),
    "worker": Trouble(part="worker", problem="is away; commands wait for one (noetl worker)"),
}
_HINDERED = {
    "publisher": "cannot publish; commands do not reach workers, and what it has is kept until they can",
    "projector": "cannot project; lists may be behind the log",
}


class Condition:
    """Asks the ledger and hears what the other parts say of themselves; once a second, whoever asks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._found: tuple[Trouble, ...] = ()
        self._told: frozenset[str] = frozenset()

    async def troubles(self) -> tuple[Trouble, ...]:
        """What is wrong now; nothing, most of the time. It takes two seconds at most."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= _FRESH_SECONDS:
                self._found = await self._ask()
                self._asked_at = time.monotonic()
        return self._found

    @property
    def is_ready(self) -> bool:
        """Whether requests can be answered, as of the last look."""
        return _LEDGER not in self._found

    async def _ask(self) -> tuple[Trouble, ...]:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._services.embedded.ledger.position()
                return () if self._services.place.lease_seconds is None else await self._others()
        except TimeoutError:
            self._tell({f"the ledger has not answered within {_ANSWER_SECONDS:g} s"})
        except NoetlError as error:
            self._tell({str(error)})
        return (_LEDGER,)

    async def _others(self) -> tuple[Trouble, ...]:
        """Of an installation whose commands are run by workers."""
        embedded = self._services.embedded
        words = await heard(embedded.kv)
        workers = await Roster(embedded.kv, embedded.clock).pools()
        missing = [] if any(word.kind == "publisher" for word in words) else [_NOBODY["publisher"]]
        missing += [] if workers.pools else [_NOBODY["worker"]]
        troubled = {word.name: word for word in words if word.problem is not None}
        self._tell({f"{word.name}: {word.problem}" for word in troubled.values()})
        return (*missing, *(Trouble(part=word.kind, problem=_HINDERED[word.kind]) for word in troubled.values()))

    def _tell(self, said: set[str]) -> None:
        """Into the log, with all that is known; each once for as long as it lasts."""
        for text in said - self._told:
            _log.warning("the service is degraded: %s", text)
        self._told = frozenset(said)
