"""Telemetry: what is worth recording about work that goes on for long, beside the chain of decisions.

A stream of its own takes it, so that a heartbeat never gets in the way of a decision. From time to time, and
at the end, the chained log vouches for it with a seal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from noetl.engine.fact import Fact
from noetl.errors import StreamSealed, Unavailable
from noetl.kernel.event import Draft, Envelope
from noetl.kernel.seal import Seal
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import telemetry_stream
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.driver import Driver
from noetl.runtime.sealing import measure

__all__ = ["Telemetry"]


class Telemetry:
    """The telemetry streams of the executions of one tenant."""

    def __init__(self, ledger: Ledger, tenant_id: str, driver: Driver) -> None:
        self._ledger = ledger
        self._tenant_id = tenant_id
        self._driver = driver
        self._unsealed: set[int] = set()
        self._sealing = asyncio.Lock()

    async def beat(self, execution_id: int, command_id: int, step: str, worker_id: str) -> None:
        """A command is still being worked on. Said once for each time it was claimed; the leases know the rest."""
        fact = Fact(event_type="command.heartbeat", node_name=step, command_id=command_id, aggregate_type="command",
                    status="RUNNING", meta={"worker_id": worker_id})  # fmt: skip
        try:
            await self._driver.tell(execution_id, self._stream(execution_id), fact)
        except StreamSealed:
            return  # its execution is over
        self._unsealed.add(execution_id)

    async def tell(self, execution_id: int, drafts: Sequence[Draft]) -> Sequence[Envelope]:
        """Write down what is worth knowing about stages that run for long; the events, for those who watch.

        That it cannot be is not worth a failure.
        """
        try:
            events = await self._ledger.append([Batch(stream=self._stream(execution_id), drafts=drafts)])
        except (Unavailable, StreamSealed):
            return ()
        self._unsealed.add(execution_id)
        return events

    async def seal(self, execution_id: int, *, final: bool = False) -> None:
        """Vouch for what was said so far; after a final seal nothing more can be."""
        async with self._sealing:
            if execution_id in self._unsealed:
                await self._seal(execution_id, final)

    async def _seal(self, execution_id: int, final: bool) -> None:
        stream, last = self._stream(execution_id), (await self._driver.latest(execution_id)).sealed
        if last is not None and last.final:
            self._unsealed.discard(execution_id)  # by another process, perhaps
            return
        seal = await measure(self._ledger, stream, last, final=final)
        fact = Fact(event_type="stream.sealed", aggregate_type="stream", aggregate_id=stream.stream_id,
                    payload={"seal": msgspec.to_builtins(seal)})  # fmt: skip
        await self._driver.note(execution_id, fact, unless=lambda found: _says_more(found.sealed, seal))
        if final:
            self._unsealed.discard(execution_id)

    async def seal_all(self) -> None:
        """Vouch for what was said since the last time; for good, where an execution is over, by whosever word."""
        for execution_id in list(self._unsealed):
            control = (await self._driver.latest(execution_id)).control
            await self.seal(execution_id, final=control.ended is not None and control.idle)

    async def close(self) -> None:
        """Vouch for everything before this process ends."""
        await self.seal_all()

    async def take_up(self, execution_id: int) -> None:
        """Go on where a process before this one has stopped."""
        if await self._ledger.read(self._stream(execution_id), limit=1):
            self._unsealed.add(execution_id)

    def _stream(self, execution_id: int) -> Stream:
        return Stream(self._tenant_id, telemetry_stream(execution_id))


def _says_more(there: Seal | None, seal: Seal) -> bool:
    """Whether the log vouches for all that this seal does, perhaps by the word of another process."""
    return there is not None and (there.final or (there.count >= seal.count and not seal.final))
