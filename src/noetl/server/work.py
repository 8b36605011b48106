"""Routes of workers: commands for processes that have no database.

They stand apart from the rest of the API: their callers hold a token with the role worker, which is for every tenant,
and what they may do with a command ends with their lease of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noetl import __version__
from noetl.errors import Conflict, NotFound, Unavailable
from noetl.kernel.ids import MAX_ID
from noetl.ports.access import Access
from noetl.runtime.remote import stage_wire, wire
from noetl.runtime.remote.desk import Desk
from noetl.runtime.remote.roster import Roster
from noetl.runtime.remote.store import store_name
from noetl.server.context import caller, require_here, services_of
from noetl.server.problems import Malformed
from noetl.settings import format_size

__all__ = ["routes"]

MOST_BODY = 256 << 20
_permit_admin = require_here("admin")
_Answer = Callable[[Desk, int, bytes], Awaitable[msgspec.Struct | bytes | None]]


async def _claim(desk: Desk, command_id: int, body: bytes) -> bytes:
    return await desk.claim(command_id, wire.decode(body, wire.ClaimRequest))


async def _heartbeat(desk: Desk, command_id: int, body: bytes) -> None:
    await desk.heartbeat(command_id, wire.decode(body, wire.BeatRequest))


async def _report(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.report(command_id, wire.decode(body, wire.ReportRequest))


async def _release(desk: Desk, command_id: int, body: bytes) -> None:
    await desk.release(command_id, wire.decode(body, wire.Asked))


async def _result(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.result(command_id, wire.decode(body, wire.ResultRequest))


async def _playbook(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.playbook(command_id, wire.decode(body, wire.PlaybookRequest))


async def _read(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.read(command_id, wire.decode(body, wire.ReadRequest))


async def _store(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.store(command_id, wire.decode(body, wire.StoreRequest))


async def _stage(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.stages.about(command_id, wire.decode(body, wire.Asked))


async def _append(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.stages.append(command_id, wire.decode(body, stage_wire.AppendRequest))


async def _log(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.stages.read(command_id, wire.decode(body, stage_wire.LogRequest))


async def _look(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.stages.look(command_id, wire.decode(body, wire.Asked))


async def _call(desk: Desk, command_id: int, body: bytes) -> msgspec.Struct:
    return await desk.stages.call(command_id, wire.decode(body, stage_wire.RowCallRequest))


async def _credential(desk: Desk, _: int, body: bytes) -> msgspec.Struct:
    return await desk.credential(wire.decode(body, wire.CredentialRequest))


_ABOUT_COMMANDS: dict[str, _Answer] = {
    "claim": _claim, "heartbeat": _heartbeat, "report": _report, "release": _release, "result": _result,
    "playbook": _playbook, "read": _read, "store": _store,
    "stage": _stage, "append": _append, "log": _log, "look": _look, "call": _call,
}  # fmt: skip


def routes() -> list[Route]:
    """Every path that workers ask."""
    found = [
        Route(f"/api/commands/{{command_id:int}}/{what}", _about_command(answer), methods=["POST"])
        for what, answer in _ABOUT_COMMANDS.items()
    ]
    return [
        Route(wire.REGISTER, _register, methods=["POST"]),
        Route("/api/worker/pool/heartbeat", _register, methods=["POST"]),
        Route(wire.DEREGISTER, _deregister, methods=["POST"]),
        Route("/api/worker/pools", _pools, methods=["GET"]),
        Route("/api/topology", _topology, methods=["GET"]),
        Route("/api/credentials/resolve", _about_command(_credential), methods=["POST"]),
        *found,
    ]


async def _register(request: Request) -> Response:
    """Let a worker in, or say why not. Raises Conflict for one of another release, and where there is no work."""
    await _check(request)
    hello = wire.decode(await _body(request), wire.Hello)
    services = services_of(request)
    if hello.protocol != wire.PROTOCOL:
        raise Conflict(
            f"this server is noetl {__version__} and does not understand the worker, which is {hello.version}",
            hint="install the same release for both",
        )
    if services.place.lease_seconds is None:
        raise Conflict(
            "this server runs its commands itself", hint="start it with --workers 0 to leave them to noetl worker"
        )
    await _roster(request).note(hello)
    store = store_name(services.settings, services.place.home)
    welcome = wire.Welcome(
        version=__version__, protocol=wire.PROTOCOL, lease_seconds=services.place.lease_seconds, store=store
    )
    return _answer(welcome)


async def _deregister(request: Request) -> Response:
    """A worker goes."""
    await _check(request)
    await _roster(request).remove(wire.decode(await _body(request), wire.Goodbye).worker_id)
    return _answer(None)


async def _pools(request: Request) -> Response:
    """Which workers there are, of the whole installation."""
    await _permit_admin(request)
    return _answer(await _roster(request).pools())


async def _topology(request: Request) -> Response:
    """The same by place."""
    await _permit_admin(request)
    return _answer(await _roster(request).topology())


def _roster(request: Request) -> Roster:
    embedded = services_of(request).embedded
    return Roster(embedded.kv, embedded.clock)


def _about_command(answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        await _check(request)
        body = await _body(request)
        named = _named(body)
        services = services_of(request)
        if services.place.lease_seconds is None:
            raise NotFound("this server runs its commands itself", hint="drop it")
        if answer is _claim and request.app.state.closing.is_set():
            raise Unavailable("this server is draining, and gives out nothing more", hint="ask another one")
        command_id = request.path_params.get("command_id", 0)
        if command_id > MAX_ID:
            raise NotFound(f"there is no command {command_id}", hint="ids are decimal numbers of 63 bits")
        service = await services.of(named.tenant_id, named.organization_id)
        return _answer(await answer(service.desk, command_id, body))

    return respond


class _Named(msgspec.Struct):
    tenant_id: str
    organization_id: str


def _named(body: bytes) -> _Named:
    try:
        return msgspec.json.decode(body, type=_Named)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None


async def _check(request: Request) -> None:
    access: Access = request.app.state.access
    await access.check(await caller(request), "work", request.scope["path"])


async def _body(request: Request) -> bytes:
    """Results come with reports, so a body may be larger than elsewhere, but not as large as it likes."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > MOST_BODY:
            raise HTTPException(413, f"the body has more than {format_size(MOST_BODY)}")
    return bytes(found)


def _answer(said: msgspec.Struct | bytes | None) -> Response:
    body = wire.encode(said) if isinstance(said, msgspec.Struct) else said or b"{}"
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})
