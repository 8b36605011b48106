"""The door of the stages that a process keeps: requests of slots in other processes, whatever brings them.

It knows nothing of sockets or frameworks: bytes in, bytes out. FastAPI and the loopback listener both stand before it.
A slot that got no answer asks again under the same number, and is told what it was told before.
"""

from __future__ import annotations

import asyncio
import contextvars
import hmac
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from noetl.data.frame.protocol import Frame, FrameOutcome, FramePlane, FrameTerminal, Opening, SlotReport
from noetl.errors import Forbidden, InvalidInput, NotFound, Unauthenticated
from noetl.kernel.event import Json
from noetl.runtime.stages.paths import CARRIER_ROUTE, read_path
from noetl.runtime.stages.support import CallRequest, Support
from noetl.runtime.stages.token import StageToken

__all__ = [
    "ClaimRequest",
    "CommitRequest",
    "CredentialRequest",
    "Door",
    "FinishRequest",
    "HeartbeatRequest",
    "OpenRequest",
    "OwnCommitRequest",
    "OwnHeartbeatRequest",
]

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class ClaimRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A slot asks for frames. `number` tells a request that is repeated from a new one."""

    slot: int
    worker: str
    most: int = 1
    number: int | None = None


class OpenRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A slot of a cursor has claimed rows."""

    worker: str
    openings: tuple[Opening, ...]
    number: int | None = None


class FinishRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A slot has drained."""

    worker: str
    report: SlotReport


class HeartbeatRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Frames that are still being run."""

    worker: str
    frames: tuple[Frame, ...]


class OwnHeartbeatRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One frame is still being run; the path says which."""

    worker: str
    token: str


class CommitRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What came of frames."""

    worker: str
    outcomes: tuple[FrameOutcome, ...]


class OwnCommitRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What came of one frame; the path says of which."""

    worker: str
    outcome: FrameOutcome


class CredentialRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body of the stage needs a credential."""

    alias: str


class _Kept:
    """A stage that is kept here, and what its slots were last told."""

    def __init__(self, stage_id: int, plane: FramePlane, token: StageToken, support: Support | None) -> None:
        self.stage_id = stage_id
        self.plane = plane
        self._support = support
        self.token = token
        self._told: dict[tuple[str, str], tuple[int, asyncio.Task[Any]]] = {}
        self._context = contextvars.copy_context()
        """In which whoever keeps the stage works: its secrets and calls are asked for by that one's right."""

    @property
    def support(self) -> Support:
        """What slots of other processes are given beside frames. Raises NotFound."""
        if self._support is None:
            raise NotFound(f"stage {self.stage_id} runs in the process that keeps it")
        return self._support

    async def once(self, what: str, worker: str, number: int | None, act: Callable[[], Awaitable[T]]) -> T:
        """The answer to a request; to one that comes again, the answer that got lost."""
        if number is None:
            return await act()
        known = self._told.get((what, worker))
        if known is None or known[0] != number:
            known = (number, asyncio.ensure_future(act()))
            self._told[what, worker] = known
        found: T = await asyncio.shield(known[1])
        return found

    async def by_right(self, act: Coroutine[Any, Any, T]) -> T:
        """Do something as whoever keeps the stage."""
        return await asyncio.create_task(act, context=self._context)

    def close(self) -> None:
        for _, task in self._told.values():
            task.cancel()


class Door:
    """Lets requests in that show the token of a stage which is kept here."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._carriers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}

    def keep(self, stage_id: int, plane: FramePlane, support: Support | None = None) -> str:
        """Answer for a stage from now on; the token that its slots show."""
        token = StageToken(stage_id)
        self._kept[token.text] = _Kept(stage_id, plane, token, support)
        return token.text

    def leave(self, token: str) -> None:
        """Answer no more for a stage."""
        kept = self._kept.pop(token, None)
        if kept is not None:
            kept.close()

    def admit(self, answer: Callable[[bytes], Awaitable[bytes]]) -> str:
        """Let a carrier of slots in, with the token that this gives."""
        token = secrets.token_hex(32)
        self._carriers[token] = answer
        return token

    def dismiss(self, token: str) -> None:
        """Answer a carrier no more."""
        self._carriers.pop(token, None)

    def admits(self, authorization: str) -> bool:
        """Whether this is the token of a stage which is kept here."""
        return self._find(authorization) is not None

    async def answer(self, path: str, authorization: str, body: bytes) -> bytes:
        """What a POST to a path is answered.

        Raises Unauthenticated, Forbidden, NotFound, InvalidInput, FrameTerminal, and Unavailable if it is not known.
        """
        if path == CARRIER_ROUTE:
            return await self._carrier(authorization)(body)
        kept = self._find(authorization)
        if kept is None:
            raise Unauthenticated(
                "the token is not that of a stage which is kept here",
                hint="the stage has ended or moved: drop the work",
            )
        asked = read_path(path)
        if asked is None:
            raise NotFound(f"there is nothing at {path[:200]}")
        if asked.stage_id is None:
            return await (_heartbeat if asked.action == "heartbeat" else _commit)(kept, asked.frame_id, body)
        if asked.stage_id != kept.stage_id:
            raise Forbidden(f"the token is not one of stage {asked.stage_id}", hint="each stage has its own")
        return await _STAGE_ACTS[asked.action](kept, body)

    def _carrier(self, authorization: str) -> Callable[[bytes], Awaitable[bytes]]:
        shown = authorization.partition(" ")[2].strip().encode()
        for token, answer in self._carriers.items():
            if hmac.compare_digest(token.encode(), shown):
                return answer
        raise Unauthenticated("the token is not that of a carrier", hint="it was dismissed: end")

    def _find(self, authorization: str) -> _Kept | None:
        scheme, _, shown = authorization.partition(" ")
        shown = shown.strip()
        stage_id = StageToken.stage_of(shown) if scheme.lower() == "bearer" else None
        for kept in self._kept.values():
            if kept.stage_id == stage_id and kept.token.matches(shown):
                return kept
        return None


async def _claim(kept: _Kept, body: bytes) -> bytes:
    asked = _read(body, ClaimRequest)
    claimed = await kept.once(
        "claim", asked.worker, asked.number, lambda: kept.plane.claim(asked.slot, asked.worker, most=asked.most)
    )
    return _encode(claimed)


async def _open(kept: _Kept, body: bytes) -> bytes:
    asked = _read(body, OpenRequest)
    opened = await kept.once("open", asked.worker, asked.number, lambda: kept.plane.open(asked.worker, asked.openings))
    return _encode({"frames": opened})


async def _finish(kept: _Kept, body: bytes) -> bytes:
    asked = _read(body, FinishRequest)
    await kept.plane.finish(asked.worker, asked.report)
    return b"{}"


async def _credential(kept: _Kept, body: bytes) -> bytes:
    asked = _read(body, CredentialRequest)
    return _encode({"data": await kept.by_right(kept.plane.credential(asked.alias))})


async def _kit(kept: _Kept, body: bytes) -> bytes:
    return _encode(kept.support.kit())


async def _keychain(kept: _Kept, body: bytes) -> bytes:
    return _encode({"data": await kept.by_right(kept.support.keychain())})


async def _call(kept: _Kept, body: bytes) -> bytes:
    return _encode(await kept.by_right(kept.support.call(_read(body, CallRequest))))


_STAGE_ACTS = {
    "frames/claim": _claim,
    "frames/open": _open,
    "frames/finish": _finish,
    "credential": _credential,
    "kit": _kit,
    "keychain": _keychain,
    "call": _call,
}


async def _heartbeat(kept: _Kept, frame_id: int | None, body: bytes) -> bytes:
    if frame_id is None:
        asked = _read(body, HeartbeatRequest)
        return _encode({"leases": await kept.plane.heartbeat(asked.worker, asked.frames)})
    own = _read(body, OwnHeartbeatRequest)
    shown = Frame(frame_id=frame_id, slot=0, index=0, token=own.token)
    return _encode({"leases": await kept.plane.heartbeat(own.worker, (shown,))})


async def _commit(kept: _Kept, frame_id: int | None, body: bytes) -> bytes:
    if frame_id is None:
        asked = _read(body, CommitRequest)
        return _encode({"frames": await kept.plane.commit(asked.worker, asked.outcomes)})
    own = _read(body, OwnCommitRequest)
    if own.outcome.frame_id != frame_id:
        raise InvalidInput(f"the outcome is that of frame {own.outcome.frame_id}, not of {frame_id}")
    said: Json = (await kept.plane.commit(own.worker, (own.outcome,)))[frame_id]
    if "terminal" in said:
        raise FrameTerminal(frame_id, said["terminal"])
    return _encode(said)


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not valid: {error}") from None
