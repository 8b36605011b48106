"""The desk: where workers of other processes get the commands of an organisation, and say what came of them."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.engine.decide import Report, Suspension
from noetl.errors import Conflict, Corruption, InvalidInput, NotFound
from noetl.kernel.event import Json
from noetl.kernel.ids import unix_ms
from noetl.observe import metrics
from noetl.ports.credentials import Credential
from noetl.ports.leases import Lease
from noetl.runtime.addresses import Addresses
from noetl.runtime.calls import Found, find_document
from noetl.runtime.control import Held
from noetl.runtime.driver import Issued, Origin
from noetl.runtime.embedded.runner import Runner
from noetl.runtime.execution import Execution
from noetl.runtime.pool import outcome_of
from noetl.runtime.remote.alone import is_alive
from noetl.runtime.remote.giving import Documents, given
from noetl.runtime.remote.prints import keep_prints
from noetl.runtime.remote.stage_desk import StageDesk
from noetl.runtime.remote.terms import is_kept
from noetl.runtime.remote.topology import Candidate, Verdict
from noetl.runtime.remote.wire import (
    Asked,
    BeatRequest,
    ClaimRequest,
    CredentialRequest,
    Declined,
    PlaybookRequest,
    ReadRequest,
    ReportRequest,
    ResultRequest,
    StoreRequest,
    Taken,
    Value,
    encode,
    packed,
    unpacked,
)
from noetl.runtime.tooling import addresses_of
from noetl.runtime.wiring import Embedded
from noetl.tools.authority import Authority

__all__ = ["Desk"]


class Desk:
    """Gives out commands of one organisation. Whoever comes without the lease of a command gets nothing for it."""

    def __init__(self, embedded: Embedded, origin: Origin, runner: Runner) -> None:
        self._embedded = embedded
        self._origin = origin
        self._runner = runner
        self._addresses: Addresses | None = None
        self._written = Documents()
        self.stages = StageDesk(embedded.ledger, origin, runner, self._check)
        """Where those of them ask who keep data stages."""

    async def claim(self, command_id: int, asked: ClaimRequest) -> bytes:
        """The command. Raises Conflict if somebody else has it, NotFound if nobody wants it any more."""
        execution = await self._execution(command_id, asked.execution_id)
        command = execution.control.commands.get(command_id)
        if command is not None and is_kept(execution, command_id, command.step, command.kind):
            raise NotFound(f"command {command_id} is for the server itself", hint="drop it")
        if await self.is_left_alone(execution):
            raise NotFound(f"command {command_id} is for the local run that has issued it", hint="drop it")
        verdict = await self._verdict(execution, command_id, asked)
        if verdict is not None and not verdict.taken:
            return encode(Declined(declined=verdict.reason, seconds=verdict.seconds))
        issued = _issued(command_id, asked)
        claim = await self._runner.control.claim(issued, asked.worker_id)
        if claim is None:
            if await self._runner.control.is_held(issued):
                raise Conflict(f"command {command_id} is taken", hint="ask again later, or drop it")
            raise NotFound(f"command {command_id} is not awaited any more", hint="drop it")
        placement = {} if verdict is None else verdict.recorded(execution.commands[command_id]["placement"])
        return given(claim, asked.knows, self._written, placement)

    async def heartbeat(self, command_id: int, asked: BeatRequest) -> None:
        """Keep a command for longer. Raises LeaseLost."""
        held = self._held(command_id, asked)
        await self._runner.control.renew(held)
        self._keep(command_id, asked)
        if asked.is_first:
            await self._runner.telemetry.beat(asked.execution_id, command_id, asked.step, asked.worker_id)

    async def report(self, command_id: int, asked: ReportRequest) -> Taken:
        """Write down what came of a command. Raises LeaseLost for one that was lost meanwhile."""
        held, said = self._held(command_id, asked), _signed(asked)
        if said.command_id != command_id:
            raise InvalidInput(f"the report is about command {said.command_id}, not {command_id}")
        if asked.prints:
            await self._check(command_id, asked)
            self._keep(command_id, asked)
        metrics.count("noetl_commands_total", asked.kind, outcome_of(said))
        if isinstance(said, Suspension):
            taken = await self._runner.control.suspend(held, said) is not None
        else:
            taken = await self._runner.control.report(held, said)
        await self._runner.done(asked.execution_id, taken)
        return Taken(taken=taken)

    async def release(self, command_id: int, asked: Asked) -> None:
        """A worker that goes leaves its command to others."""
        await self._runner.control.release(self._held(command_id, asked))

    async def abandon(self, execution_id: int, command_id: int, worker_id: str) -> bool:
        """Give a command of a worker that is not heard of to another; False if it has ended. Raises NotFound."""
        return await self._runner.driver.abandon(execution_id, command_id, worker_id)

    async def result(self, command_id: int, asked: ResultRequest) -> Value:
        """The whole result of a step. Raises NotFound, LeaseLost."""
        await self._check(command_id, asked)
        try:
            found = await self._runner.control.result(asked.execution_id, asked.of_step, asked.reference)
        except Corruption as problem:
            raise NotFound(str(problem)) from None  # for the command it comes to the same
        return Value(value=packed({"value": found}))

    async def credential(self, asked: CredentialRequest) -> Credential:
        """The values of a credential, for a command that is at work. Raises NotFound, Forbidden, LeaseLost."""
        await self._check(asked.command_id, asked)
        found = await self._embedded.credentials.resolve(self._origin.tenant_id, asked.alias)
        execution = await self._runner.driver.execution(asked.execution_id)
        Authority.read(execution.control.authority).check_credential(asked.alias)
        return found

    async def playbook(self, command_id: int, asked: PlaybookRequest) -> Found:
        """The playbook that a command calls. Raises NotFound, LeaseLost."""
        await self._check(command_id, asked)
        entry = await find_document(self._embedded.catalog, self._origin.tenant_id, asked.path, asked.version)
        return Found(path=entry.path, version=entry.version)

    async def read(self, command_id: int, asked: ReadRequest) -> Value:
        """What is kept under an address. Raises NotFound, AccessRefused, LeaseLost."""
        await self._check(command_id, asked)
        found: Any = await self._kept.read(asked.uri)
        return Value(data=found) if isinstance(found, bytes) else Value(value={"value": found})

    async def store(self, command_id: int, asked: StoreRequest) -> Value:
        """Keep bytes; the address that has them. Raises LeaseLost."""
        await self._check(command_id, asked)
        return Value(value={"value": await self._kept.store(asked.uri, asked.data)})

    @property
    def _kept(self) -> Addresses:
        if self._addresses is None:
            self._addresses = addresses_of(self._embedded, self._origin)
        return self._addresses

    async def is_left_alone(self, execution: Execution) -> bool:
        """Whether a local run works on an execution, and lives: servers and workers keep off then."""
        if not execution.is_alone:
            return False
        embedded, root = self._embedded, execution.control.root_execution_id or execution.control.execution_id
        return await is_alive(embedded.leases, self._origin, root, embedded.clock.now())

    async def _execution(self, command_id: int, execution_id: int) -> Execution:
        """What is to be known before a lease is taken, which would be in the way of whoever keeps the command."""
        execution = await self._runner.driver.execution(execution_id)
        if command_id not in execution.control.commands:
            execution = await self._runner.driver.latest(execution_id)
        return execution

    async def _verdict(self, execution: Execution, command_id: int, asked: ClaimRequest) -> Verdict | None:
        """Whether the worker is to have it; None for a command that wants to run anywhere."""
        if self._runner.routes is None:
            return None
        worker = Candidate(worker_id=asked.worker_id, locality=asked.locality, labels=asked.labels)
        waited = self._embedded.clock.now() / 1e6 - unix_ms(command_id) / 1e3
        return await self._runner.routes.verdict(execution, command_id, worker, waited)

    def _keep(self, command_id: int, asked: BeatRequest | ReportRequest) -> None:
        if asked.prints and self._runner.on_notice is not None:
            keep_prints(asked.prints, self._runner.on_notice, asked.execution_id, command_id)

    async def _check(self, command_id: int, asked: Asked) -> None:
        await self._runner.control.check(self._held(command_id, asked))

    def _held(self, command_id: int, asked: Asked) -> Held:
        issued = _issued(command_id, asked)
        name = self._runner.control.name_of(issued)
        lease = Lease(name=name, owner=asked.worker_id, token=asked.token, expires_at=0)
        return Held(issued=issued, lease=lease, stage=asked.stage)


def _issued(command_id: int, asked: Asked) -> Issued:
    return Issued(execution_id=asked.execution_id, command_id=command_id, step=asked.step, kind=asked.kind)


def _signed(asked: ReportRequest) -> Report | Suspension:
    return msgspec.structs.replace(_said(asked), worker_id=asked.worker_id, place=asked.place)


def _said(asked: ReportRequest) -> Report | Suspension:
    said: Json | None = asked.report if asked.suspension is None else asked.suspension
    if said is None or (asked.report is not None and asked.suspension is not None):
        raise InvalidInput("a report or a suspension is expected, and one of them")
    try:
        if asked.suspension is not None:
            return msgspec.convert(said, Suspension)
        found = unpacked(said)
        rest = msgspec.convert({name: value for name, value in found.items() if name != "result"}, Report)
        return msgspec.structs.replace(rest, result=found.get("result"))  # a table in it stays what it is
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the report is not valid: {error}") from None
