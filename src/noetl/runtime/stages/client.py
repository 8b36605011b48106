"""The control plane of a stage as slots in another process see it: HTTP with the stage's token."""

from __future__ import annotations

import asyncio
import itertools
from http import HTTPStatus
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from noetl.data.frame.protocol import Claimed, Frame, FrameOutcome, Opening, SlotReport
from noetl.errors import Forbidden, InvalidInput, NotFound, Unauthenticated, Unavailable
from noetl.kernel.event import Json
from noetl.runtime.stages.connections import Connections
from noetl.runtime.stages.door import (
    ClaimRequest,
    CommitRequest,
    CredentialRequest,
    FinishRequest,
    HeartbeatRequest,
    OpenRequest,
)
from noetl.runtime.stages.support import Called, CallRequest, Kit

__all__ = ["RemotePlane"]

T = TypeVar("T")
_TRIES = 5
_PAUSE = 0.1
_SECONDS = 60.0


class _Opened(msgspec.Struct):
    frames: tuple[Frame, ...]


class _Leases(msgspec.Struct):
    leases: dict[int, str]


class _Committed(msgspec.Struct):
    frames: dict[int, Json]


class _Credential(msgspec.Struct):
    data: Any


class _Keychain(msgspec.Struct):
    data: Json


class _Nothing(msgspec.Struct):
    pass


class RemotePlane:
    """A FramePlane over HTTP. A stage that is not kept at the address any more is drained, and its frames are lost."""

    def __init__(self, url: str, stage_id: int, token: str) -> None:
        self._url = url
        self._connections = Connections(url, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        self._stage = f"/api/stages/{stage_id}"
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> RemotePlane:
        """Keep connections open until the end."""
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self._connections.close()

    async def claim(self, slot: int, worker: str, *, most: int = 1) -> Claimed:
        """Frames to run."""
        asked = ClaimRequest(slot=slot, worker=worker, most=most, number=next(self._numbers))
        return await self._ask(f"{self._stage}/frames/claim", asked, Claimed) or Claimed(drained=True)

    async def open(self, worker: str, openings: tuple[Opening, ...]) -> tuple[Frame, ...]:
        """Record frames of a cursor whose rows were just claimed; nothing if nobody wants them any more."""
        asked = OpenRequest(worker=worker, openings=openings, number=next(self._numbers))
        found = await self._ask(f"{self._stage}/frames/open", asked, _Opened)
        return () if found is None else found.frames

    async def heartbeat(self, worker: str, frames: tuple[Frame, ...]) -> dict[int, str]:
        """Renew leases."""
        shown = tuple(
            Frame(frame_id=frame.frame_id, slot=frame.slot, index=frame.index, token=frame.token) for frame in frames
        )
        found = await self._ask("/api/frames/heartbeat", HeartbeatRequest(worker=worker, frames=shown), _Leases)
        return {} if found is None else found.leases

    async def commit(self, worker: str, outcomes: tuple[FrameOutcome, ...]) -> dict[int, Json]:
        """Write down what came of frames."""
        found = await self._ask("/api/frames/commit", CommitRequest(worker=worker, outcomes=outcomes), _Committed)
        return {one.frame_id: {"lost": True} for one in outcomes} if found is None else found.frames

    async def finish(self, worker: str, report: SlotReport) -> None:
        """The slot has drained."""
        await self._ask(f"{self._stage}/frames/finish", FinishRequest(worker=worker, report=report), Json)

    async def credential(self, alias: str) -> Any:
        """The data of a credential that the stage's authority allows. Raises Forbidden, NotFound."""
        return _there(await self._ask(f"{self._stage}/credential", CredentialRequest(alias=alias), _Credential)).data

    # --- What slots of another process need beside frames

    async def kit(self) -> Kit:
        """Everything to run the stage's body with. Raises Unauthenticated if it is not kept here any more."""
        return _there(await self._ask(f"{self._stage}/kit", _Nothing(), Kit))

    async def keychain(self) -> Json:
        """The entries of the keychain that the stage's step names, as they are now."""
        return _there(await self._ask(f"{self._stage}/keychain", _Nothing(), _Keychain)).data

    async def call(self, asked: CallRequest) -> Called:
        """Call a playbook and wait for its end, however long that takes. Asking again finds the same execution."""
        return _there(await self._ask(f"{self._stage}/call", asked, Called, seconds=None))

    async def _ask(self, path: str, asked: msgspec.Struct, kind: type[T], seconds: float | None = _SECONDS) -> T | None:
        """The answer; None from whoever does not keep the stage. Tries again while nobody answers."""
        data, problem = msgspec.json.encode(asked), "no answer"
        for tried in range(_TRIES):
            try:
                async with asyncio.timeout(seconds):
                    status, body = await self._connections.post(path, data)
            except (OSError, EOFError, ValueError, KeyError, asyncio.LimitOverrunError) as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if status == HTTPStatus.OK:
                    return msgspec.json.decode(body, type=kind)
                if status == HTTPStatus.UNAUTHORIZED:
                    return None
                if status != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise _refusal(status, body)
                problem = str(_refusal(status, body))
            await asyncio.sleep(_PAUSE * 2**tried)
        raise Unavailable(f"the keeper of the stage at {self._url} cannot be reached: {problem}")


def _there(found: T | None) -> T:
    if found is None:
        raise Unauthenticated("the stage is not kept here any more", hint="drop the work")
    return found


def _refusal(status: int, body: bytes) -> Exception:
    try:
        said = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        said = {}
    message, hint = str(said.get("detail", f"status {status}")), said.get("hint")
    kinds = {HTTPStatus.FORBIDDEN: Forbidden, HTTPStatus.NOT_FOUND: NotFound}
    kind = kinds.get(HTTPStatus(status), InvalidInput if status < HTTPStatus.INTERNAL_SERVER_ERROR else Unavailable)
    return kind(message, hint=hint)
