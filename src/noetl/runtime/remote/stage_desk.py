"""The desk for workers that keep data stages: it writes what they say into the log of their stage, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from noetl.engine.pipeline import RunTask
from noetl.errors import Forbidden, InvalidInput, NotFound
from noetl.kernel.event import Draft, Envelope
from noetl.kernel.lazy import plain
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream
from noetl.playbook.document import Task
from noetl.ports.ledger import Ledger
from noetl.runtime.control import work_of
from noetl.runtime.driver import Origin
from noetl.runtime.embedded.runner import Runner
from noetl.runtime.execution import Execution
from noetl.runtime.remote.stage_wire import (
    Appended,
    AppendRequest,
    CalledOrNot,
    Heeded,
    LogPage,
    LogRequest,
    RowCallRequest,
)
from noetl.runtime.remote.wire import Asked
from noetl.runtime.stages.base import About, about, heed_of
from noetl.runtime.stages.support import CallRequest
from noetl.tools.base import Outcome

__all__ = ["StageDesk"]

Check = Callable[[int, Asked], Awaitable[None]]
"""Raises LeaseLost for whoever does not have the command."""
_PATIENCE = 20.0
_KINDS = ("stage.", "frame.")
_MOST_EVENTS = 1000


class StageDesk:
    """Answers the keepers of an organisation's stages that are not of this process."""

    def __init__(self, ledger: Ledger, origin: Origin, runner: Runner, check: Check) -> None:
        self._ledger = ledger
        self._origin = origin
        self._runner = runner
        self._check = check
        self._calls: dict[tuple[int, str], asyncio.Task[Outcome]] = {}

    async def about(self, command_id: int, asked: Asked) -> About:
        """The execution of a stage. Raises LeaseLost."""
        await self._check(command_id, asked)
        return about(await self._runner.driver.execution(asked.execution_id), self._origin)

    async def append(self, command_id: int, asked: AppendRequest) -> Appended:
        """Write. Raises LeaseLost, VersionConflict, StreamSealed, InvalidInput.

        Who wrote it and about what is not for the worker to say: it is who has the command, and about its stage.
        """
        await self._check(command_id, asked)
        execution = await self._runner.driver.execution(asked.execution_id)
        stage_id = _stage_of(execution, command_id)
        drafts = [self._draft(execution, stage_id, one) for one in asked.drafts]
        events: Sequence[Envelope]
        if asked.to == "telemetry":
            events = await self._runner.telemetry.tell(asked.execution_id, drafts)
        else:
            stream = Stream(self._origin.tenant_id, stage_stream(asked.execution_id, stage_id))
            events = await self._ledger.append(
                [Batch(stream=stream, drafts=drafts, expected_version=asked.expected_version)]
            )
        if events:
            self._runner.notice(events)
        return Appended(events=[msgspec.to_builtins(event) for event in events])

    async def read(self, command_id: int, asked: LogRequest) -> LogPage:
        """Events of the stage, and of those that it may read from. Raises LeaseLost, Forbidden."""
        await self._check(command_id, asked)
        execution = await self._runner.driver.execution(asked.execution_id)
        adopted = {state.stage_execution for state in execution.control.steps.values()}
        if asked.of_execution not in adopted | {asked.execution_id}:
            raise Forbidden(f"command {command_id} has nothing to read in execution {asked.of_execution}")
        stream = Stream(self._origin.tenant_id, stage_stream(asked.of_execution, asked.of_stage))
        limit = min(max(1, asked.limit), _MOST_EVENTS)
        found = await self._ledger.read(stream, after_version=asked.after_version, limit=limit)
        return LogPage(events=[(item.position, msgspec.to_builtins(item.event)) for item in found])

    async def look(self, command_id: int, asked: Asked) -> Heeded:
        """Whether the stage is to go on. Raises LeaseLost."""
        await self._check(command_id, asked)
        return Heeded(heed=heed_of(await self._runner.driver.latest(asked.execution_id)))

    async def call(self, command_id: int, asked: RowCallRequest) -> CalledOrNot:
        """Call a playbook for a row. Whoever asks again waits for the same call. Raises LeaseLost."""
        await self._check(command_id, asked)
        call: CallRequest = _read(asked.call, CallRequest)
        name = (asked.execution_id, call.key)
        if name not in self._calls:
            self._calls[name] = asyncio.create_task(self._called(command_id, asked.execution_id, call))
        task = self._calls[name]
        await asyncio.wait({task}, timeout=_PATIENCE)
        if not task.done():
            return CalledOrNot(is_pending=True)
        self._calls.pop(name, None)
        outcome = task.result()
        return CalledOrNot(result=plain(outcome.result), error=outcome.error)

    async def close(self) -> None:
        """Wait for no call any more; the calls themselves go on."""
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)

    async def _called(self, command_id: int, execution_id: int, call: CallRequest) -> Outcome:
        execution = await self._runner.driver.execution(execution_id)
        work = work_of(execution, command_id, self._origin)
        if work is None:
            raise NotFound(f"command {command_id} is not awaited any more", hint="drop it")
        task = Task(name=call.task, kind="playbook", timeout=call.own_timeout)
        wanted = RunTask(
            task=task, input=call.input, fields=call.fields, auth=None, timeout=call.timeout, attempt=1, visit=1
        )
        return await self._runner.call(work, wanted, call.key)

    def _draft(self, execution: Execution, stage_id: int, said: Any) -> Draft:
        draft: Draft = _read(said, Draft)
        if not draft.event_type.startswith(_KINDS):
            raise InvalidInput(f"'{draft.event_type[:80]}' is not an event of a stage")
        return msgspec.structs.replace(
            draft,
            tenant_id=self._origin.tenant_id,
            organization_id=self._origin.organization_id,
            project_id=self._origin.project_id,
            principal=execution.principal,
            execution_id=execution.control.execution_id,
            parent_execution_id=execution.control.parent_execution_id,
            stage_id=stage_id,
        )


def _stage_of(execution: Execution, command_id: int) -> int:
    command = execution.control.commands.get(command_id)
    if command is None or not command.stage_id:
        raise NotFound(f"command {command_id} is no data stage that is awaited", hint="drop it")
    return command.stage_id


def _read(said: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the body is not valid: {error}") from None
