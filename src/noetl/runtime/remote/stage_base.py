"""The base of stages that a worker keeps: the server has their executions and logs, the object store their bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import msgspec

from noetl.engine.pipeline import RunTask
from noetl.errors import NoetlError, VersionConflict
from noetl.kernel.event import Draft, Envelope, Recorded
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.runtime.remote.client import Hand, RemoteControlPlane
from noetl.runtime.remote.secrets import in_hand
from noetl.runtime.stages.base import About, Heed
from noetl.runtime.stages.support import CallRequest
from noetl.runtime.worker import Work
from noetl.tools.base import Outcome

__all__ = ["RemoteBase", "RemoteLog", "RowCalls"]


class RemoteLog:
    """The logs of stages, by way of the server, and by right of a command that is in hand."""

    def __init__(self, control: RemoteControlPlane, hand: Callable[[], Hand]) -> None:
        self._control = control
        self._hand = hand

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Write to the stage of the command. Raises VersionConflict, StreamSealed, LeaseLost, Unavailable.

        It is asked once: after an answer that got lost the log itself tells whether it was written.
        """
        (batch,) = batches
        expected = batch.expected_version
        try:
            return await self._control.append(self._hand(), "stage", batch.drafts, expected)
        except VersionConflict as conflict:
            raise VersionConflict(batch.stream.stream_id, expected or 0, conflict.actual) from None

    async def read(self, stream: Stream, *, after_version: int = 0, limit: int = 1000) -> Sequence[Recorded]:
        """Events of a stage."""
        _, execution_id, _, stage_id = stream.stream_id.split("/")
        return await self._control.log(self._hand(), int(execution_id), int(stage_id), after_version, limit)


class RemoteBase:
    """The base of the stages of one organisation that this worker keeps."""

    def __init__(self, control: RemoteControlPlane, payloads: PayloadStore, results: ResultStore, locator: str) -> None:
        """`locator` is who writes the events of its stages."""
        self._control = control
        self._payloads = payloads
        self._results = results
        self._locator = locator
        self._hands: dict[int, Hand] = {}

    @property
    def payloads(self) -> PayloadStore:
        """Bytes."""
        return self._payloads

    @property
    def results(self) -> ResultStore:
        """The results of steps."""
        return self._results

    @contextlib.contextmanager
    def holding(self, hand: Hand) -> Iterator[None]:
        """While a command is in hand its stage can be asked about, from wherever its slots knock."""
        self._hands[hand.command.command_id] = hand
        try:
            yield
        finally:
            del self._hands[hand.command.command_id]

    async def about(self, work: Work) -> About:
        """The execution of a stage."""
        found = await self._control.stage(self._hands[work.command_id])
        return msgspec.structs.replace(found, origin=msgspec.structs.replace(found.origin, producer=self._locator))

    def log(self, work: Work) -> RemoteLog:
        """Its log, by right of its command."""
        hand = self._hands[work.command_id]
        return RemoteLog(self._control, lambda: hand)

    async def tell(self, work: Work, drafts: Sequence[Draft]) -> Sequence[Envelope]:
        """Write to the execution's telemetry, if that can be done."""
        try:
            return await self._control.append(self._hands[work.command_id], "telemetry", drafts, None)
        except (NoetlError, KeyError):
            return ()

    async def look(self, work: Work) -> Heed:
        """Whether the stage is to go on."""
        return await self._control.look(self._hands[work.command_id])


class RowCalls:
    """Playbooks that rows call: the server starts them and waits for their end."""

    def __init__(self, control: RemoteControlPlane) -> None:
        self._control = control

    async def run(self, work: Work, asked: RunTask, key: str) -> Outcome:
        """Call a playbook and wait for its end, however long that takes."""
        call = CallRequest(
            key=key,
            task=asked.task.name,
            input=asked.input,
            fields=asked.fields,
            timeout=asked.timeout,
            own_timeout=asked.task.timeout,
        )
        while (said := await self._control.call(in_hand(), call)).is_pending:
            continue
        return Outcome(result=said.result, error=said.error)
