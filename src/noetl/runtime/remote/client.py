"""The control plane as a worker without a database has it: HTTP, with a token of the role worker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, TypeVar

import msgspec

from noetl.engine.decide import Report, Suspension
from noetl.errors import (
    Conflict,
    Forbidden,
    InvalidEvent,
    InvalidInput,
    LeaseLost,
    NoetlError,
    NotFound,
    StreamSealed,
    Unauthenticated,
    Unavailable,
    VersionConflict,
)
from noetl.kernel.event import Draft, Envelope, Json, Recorded
from noetl.ports.credentials import Credential
from noetl.ports.leases import Lease
from noetl.ports.queue import QueuedCommand
from noetl.runtime.calls import Found
from noetl.runtime.control import Claim
from noetl.runtime.driver import Issued
from noetl.runtime.notices import Notice
from noetl.runtime.remote import stage_wire, wire
from noetl.runtime.remote.giving import Documents, read_given
from noetl.runtime.remote.servers import AGAIN, NO_ANSWER, Servers
from noetl.runtime.remote.topology import Locality, locator
from noetl.runtime.stages.base import About, Heed
from noetl.runtime.stages.support import CallRequest

__all__ = ["Hand", "NotHere", "RemoteControlPlane"]

T = TypeVar("T", bound=msgspec.Struct)
_LONGEST_PAUSE = 2.0
_DECLINED = b'{"declined"'
_KINDS: dict[int, type[NoetlError]] = {
    HTTPStatus.UNAUTHORIZED: Unauthenticated,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}


class Hand(msgspec.Struct, frozen=True, kw_only=True):
    """A command in the hands of this worker, and the right to it."""

    command: QueuedCommand
    worker_id: str
    claim: Claim
    placement: Json = {}
    """Why it was given to this worker, for a command that wants to run somewhere."""

    @property
    def right(self) -> Json:
        """What every question about the command has to say."""
        return {**_about(self.command, self.worker_id), "token": self.claim.lease.token, "stage": self.claim.stage}


class NotHere(Conflict):
    """A command is not for this worker, or not yet."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class RemoteControlPlane:
    """Asks the server. While nobody answers it asks again, for `patience` seconds; then it raises Unavailable."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None = None,
        *,
        patience: float = 60.0,
        locality: Locality | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`urls` are the servers of one installation; while one is away the others are asked.

        `locality` and `labels` say where the worker is, and what it has.
        """
        self._locality = locality or Locality()
        self._labels = dict(labels or {})
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connections = Servers(urls, {**given, "Content-Type": "application/json"})
        self.urls = " or ".join(urls)
        self._documents = Documents()
        self._patience = patience

    async def close(self) -> None:
        """Let go of the connections."""
        await self._connections.close()

    async def register(self, hello: wire.Hello, *, patience: float | None = None) -> wire.Welcome:
        """Say who this is. Raises Unauthenticated, Forbidden, and Conflict where this worker is of no use."""
        return await self._ask(wire.REGISTER, hello, wire.Welcome, patience)

    async def deregister(self, worker_id: str) -> None:
        """Say that this worker goes."""
        await self._ask(wire.DEREGISTER, wire.Goodbye(worker_id=worker_id), _Nothing, 0.0)

    async def claim(self, command: QueuedCommand, worker_id: str) -> Hand:
        """The command. Raises Conflict if somebody else has it, NotFound if nobody wants it any more, NotHere."""
        known = self._documents.now()
        asked = wire.ClaimRequest(
            **_about(command, worker_id), knows=list(known), labels=self._labels, locality=self._locality
        )
        answer = await self._answer(wire.path_of(command.command_id, "claim"), asked)
        if answer.startswith(_DECLINED):
            declined = wire.decode(answer, wire.Declined)
            raise NotHere(declined.declined, declined.seconds)
        given = read_given(answer, known, self._documents)
        issued = Issued(
            execution_id=command.execution_id, command_id=command.command_id, step=command.step, kind=command.kind
        )
        lease = Lease(name="", owner=worker_id, token=given.token, expires_at=0)
        claim = Claim(issued=issued, work=given.work, lease=lease, stage=given.stage, ended=given.ended)
        return Hand(command=command, worker_id=worker_id, claim=claim, placement=given.placement)

    async def heartbeat(self, hand: Hand, *, is_first: bool, prints: Sequence[Notice] = ()) -> None:
        """Keep it for longer, and tell what was printed. Raises LeaseLost."""
        asked = wire.BeatRequest(**hand.right, is_first=is_first, prints=list(prints))
        await self._ask(self._path(hand, "heartbeat"), asked, _Nothing)

    async def report(self, hand: Hand, said: Report | Suspension, prints: Sequence[Notice] = ()) -> bool:
        """What came of it; False if that was not awaited any more. Raises LeaseLost."""
        place = self._place(hand)
        if isinstance(said, Suspension):
            asked = wire.ReportRequest(
                **hand.right, suspension=msgspec.to_builtins(said), place=place, prints=list(prints)
            )
        else:
            asked = wire.ReportRequest(
                **hand.right, report=wire.packed(_fields(said)), place=place, prints=list(prints)
            )
        return (await self._ask(self._path(hand, "report"), asked, wire.Taken)).taken

    async def release(self, hand: Hand) -> None:
        """Leave it to somebody else."""
        await self._ask(self._path(hand, "release"), wire.Asked(**hand.right), _Nothing, 0.0)

    async def result(self, hand: Hand, step: str, reference: Json) -> Any:
        """The whole result of a step. Raises NotFound, LeaseLost."""
        asked = wire.ResultRequest(**hand.right, of_step=step, reference=reference)
        found = await self._ask(self._path(hand, "result"), asked, wire.Value)
        return wire.unpacked(found.value or {}).get("value")

    async def credential(self, hand: Hand, alias: str) -> Credential:
        """A credential with its values. Raises NotFound, Forbidden, LeaseLost."""
        asked = wire.CredentialRequest(**hand.right, command_id=hand.command.command_id, alias=alias)
        return await self._ask("/api/credentials/resolve", asked, Credential)

    async def playbook(self, hand: Hand, path: str, version: Any) -> Found:
        """A playbook to be called. Raises NotFound, LeaseLost."""
        asked = wire.PlaybookRequest(**hand.right, path=path, version=version)
        return await self._ask(self._path(hand, "playbook"), asked, Found)

    async def read(self, hand: Hand, uri: str) -> Any:
        """What is kept under an address: bytes, or a value. Raises NotFound, LeaseLost."""
        found = await self._ask(self._path(hand, "read"), wire.ReadRequest(**hand.right, uri=uri), wire.Value)
        return found.data if found.data is not None else (found.value or {}).get("value")

    async def store(self, hand: Hand, uri: str, data: bytes) -> str:
        """Keep bytes; their address. Raises LeaseLost."""
        asked = wire.StoreRequest(**hand.right, uri=uri, data=data)
        return str(((await self._ask(self._path(hand, "store"), asked, wire.Value)).value or {})["value"])

    # --- Data stages that this worker keeps

    async def stage(self, hand: Hand) -> About:
        """The execution of a stage. Raises LeaseLost."""
        return await self._ask(self._path(hand, "stage"), wire.Asked(**hand.right), About)

    async def append(
        self, hand: Hand, to: Literal["stage", "telemetry"], drafts: Sequence[Draft], expected: int | None
    ) -> list[Envelope]:
        """Write events of a stage. It is asked once. Raises VersionConflict, StreamSealed, LeaseLost, Unavailable."""
        said: list[Json] = [msgspec.to_builtins(draft) for draft in drafts]
        asked = stage_wire.AppendRequest(**hand.right, to=to, drafts=said, expected_version=expected)
        found = await self._ask(self._path(hand, "append"), asked, stage_wire.Appended, 0.0)
        return [msgspec.convert(event, Envelope) for event in found.events]

    async def log(self, hand: Hand, execution_id: int, stage_id: int, after_version: int, limit: int) -> list[Recorded]:
        """Events of a stage. Raises LeaseLost, Forbidden."""
        asked = stage_wire.LogRequest(
            **hand.right, of_execution=execution_id, of_stage=stage_id, after_version=after_version, limit=limit
        )
        found = await self._ask(self._path(hand, "log"), asked, stage_wire.LogPage)
        return [Recorded(position, msgspec.convert(event, Envelope)) for position, event in found.events]

    async def look(self, hand: Hand) -> Heed:
        """Whether a stage is to go on. Raises LeaseLost, and Unavailable at once."""
        return (await self._ask(self._path(hand, "look"), wire.Asked(**hand.right), stage_wire.Heeded, 0.0)).heed

    async def call(self, hand: Hand, call: CallRequest) -> stage_wire.CalledOrNot:
        """Call a playbook for a row, and wait for its end for a while. Raises LeaseLost."""
        asked = stage_wire.RowCallRequest(**hand.right, call=msgspec.to_builtins(call))
        return await self._ask(self._path(hand, "call"), asked, stage_wire.CalledOrNot)

    def _place(self, hand: Hand) -> Json:
        """Where a command was run, as the log tells."""
        command = hand.command
        name = locator(self._locality, command.tenant_id, command.organization_id, hand.worker_id)
        found: Json = {"locality": msgspec.to_builtins(self._locality), "worker_locator": name}
        return {**found, "placement": hand.placement} if hand.placement else found

    def _path(self, hand: Hand, what: str) -> str:
        return wire.path_of(hand.command.command_id, what)

    async def _ask(self, path: str, asked: msgspec.Struct, kind: type[T], patience: float | None = None) -> T:
        return wire.decode(await self._answer(path, asked, patience), kind)

    async def _answer(self, path: str, asked: msgspec.Struct, patience: float | None = None) -> bytes:
        data, pause = wire.encode(asked), 0.1
        deadline = time.monotonic() + (self._patience if patience is None else patience)
        while True:
            try:
                status, body = await self._connections.post(path, data)
            except NO_ANSWER as error:
                problem: NoetlError = Unavailable(
                    f"the server at {self.urls} does not answer: {type(error).__name__}: {error}",
                    hint="is it running? noetl server status says so on its machine",
                )
            else:
                if status == HTTPStatus.OK:
                    return body
                problem = _problem(status, body, self.urls)
                if status not in AGAIN:
                    raise problem
            if time.monotonic() >= deadline:
                raise problem
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - only that not all come at once
            pause = min(pause * 2, _LONGEST_PAUSE)


class _Nothing(msgspec.Struct):
    pass


def _about(command: QueuedCommand, worker_id: str) -> Json:
    return {
        "tenant_id": command.tenant_id,
        "organization_id": command.organization_id,
        "execution_id": command.execution_id,
        "step": command.step,
        "kind": command.kind,
        "worker_id": worker_id,
    }


def _fields(report: Report) -> Json:
    """A report as a mapping, whose result may hold tables."""
    return {
        "command_id": report.command_id,
        "result": report.result,
        "error": report.error,
        "set": report.set,
        "worker_id": report.worker_id,
        "detail": report.detail,
    }


def _problem(status: int, body: bytes, url: str) -> NoetlError:
    try:
        said = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = {}
    message = str(said.get("detail", f"{url} answered {status}, not as a NoETL server does"))
    hint = said.get("hint", "check the address" if "detail" not in said else None)
    match str(said.get("type", "")).rpartition(":")[2]:
        case "LeaseLost":
            return LeaseLost(message, hint=hint)
        case "VersionConflict":
            return VersionConflict("", 0, 0)
        case "StreamSealed":
            return StreamSealed("")
        case "InvalidEvent":
            return InvalidEvent("", message, hint=hint)
    kind = _KINDS.get(status, InvalidInput if status < HTTPStatus.INTERNAL_SERVER_ERROR else Unavailable)
    return kind(message, hint=hint)
