"""Where the commands of schedules find them: in the home of this machine, or on a server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from noetl.cli.exits import OK
from noetl.cli.options import home_of, run_async, settings_of
from noetl.cli.remote import ask, target_of
from noetl.errors import Conflict, InvalidInput, Unavailable

if TYPE_CHECKING:
    from noetl.api.server import Server
    from noetl.ports.schedules import Schedule
    from noetl.runtime.schedules.views import ScheduleRequest
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["Shelf", "with_schedules"]

_ROUTE = "/api/schedules"
_SECONDS = 30.0

Document = dict[str, Any]


class Shelf(Protocol):
    """Schedules, wherever they are, as the documents that the API has for them."""

    async def add(self, asked: ScheduleRequest) -> Document: ...

    async def list(self, limit: int, cursor: str | None) -> Document: ...

    async def show(self, name: str) -> Document: ...

    async def switch(self, name: str, *, paused: bool) -> Document: ...

    async def remove(self, name: str) -> Document: ...

    async def run(self, name: str) -> Document: ...


def with_schedules(
    context: str | None,
    home: Path | None,
    tenant: str | None,
    work: Callable[[Shelf], Coroutine[Any, Any, None]],
    *,
    create: bool = False,
) -> int:
    """Do something with the schedules of a server or of the home; with `create` the home is made first if it is new.

    A name that is taken is an error of input.
    """

    async def at_home() -> None:
        async with _home(home, tenant, create=create) as shelf:
            await work(shelf)

    async def afar(server: Server) -> int:
        await work(_Remote(server))
        return OK

    try:
        target = target_of(context, home)
        return ask(target, afar) if target is not None else run_async(at_home()) or OK
    except Conflict as error:
        raise InvalidInput(error.message, hint=error.hint) from None


class _Remote:
    """Those of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def add(self, asked: ScheduleRequest) -> Document:
        import msgspec

        said: Document = await self._server.post(_ROUTE, msgspec.to_builtins(asked))
        return said

    async def list(self, limit: int, cursor: str | None) -> Document:
        said: Document = await self._server.get(_ROUTE, limit=limit, cursor=cursor)
        return said

    async def show(self, name: str) -> Document:
        said: Document = await self._server.get(_route(name))
        return said

    async def switch(self, name: str, *, paused: bool) -> Document:
        said: Document = await self._server.post(f"{_route(name)}/{'pause' if paused else 'resume'}")
        return said

    async def remove(self, name: str) -> Document:
        said: Document = await self._server.delete(_route(name))
        return said

    async def run(self, name: str) -> Document:
        said: Document = await self._server.post(f"{_route(name)}/run")
        return said


@contextlib.asynccontextmanager
async def _home(home: Path | None, tenant: str | None, *, create: bool) -> AsyncIterator[Shelf]:
    from noetl.runtime.wiring import open_embedded

    place, settings = home_of(home), settings_of(tenant)
    async with open_embedded(place, settings, create=create) as embedded:
        yield _Local(embedded, settings, place.path)


class _Local:
    """Those of a home; its server, if it has one, sees every change at its next look."""

    def __init__(self, embedded: Embedded, settings: Settings, home: Path) -> None:
        from noetl.runtime.callers import local_caller
        from noetl.runtime.schedules.book import book_of

        self._embedded = embedded
        self._home = home
        self._caller = local_caller(settings)
        self._book = book_of(embedded, settings)

    async def add(self, asked: ScheduleRequest) -> Document:
        made = await self._book.add(self._caller, asked.name, asked.plan(), replace=asked.replace)
        return (await self._documents([made]))[0]

    async def list(self, limit: int, cursor: str | None) -> Document:
        page = await self._book.list(self._caller, cursor=cursor, limit=limit)
        return {"schedules": await self._documents(page.schedules), "next_cursor": page.next_cursor}

    async def show(self, name: str) -> Document:
        return (await self._documents([await self._book.get(self._caller, name)]))[0]

    async def switch(self, name: str, *, paused: bool) -> Document:
        change = self._book.pause if paused else self._book.resume
        return (await self._documents([await change(self._caller, name)]))[0]

    async def remove(self, name: str) -> Document:
        await self._book.remove(self._caller, name)
        return {"name": name, "removed": True}

    async def run(self, name: str) -> Document:
        """By the server of this home: an execution needs somebody who works on it."""
        from noetl.api.server import Server
        from noetl.runtime.presence import Presence

        await self._book.get(self._caller, name)
        record = Presence(self._home).running()
        if record is None:
            raise Unavailable(
                f"{self._home} has no server that could run '{name}'",
                hint="noetl server start --detach, or name another one with --context",
            )
        if record.auth != "none":
            raise Unavailable(
                f"the server of {self._home} asks for a token", hint="noetl context add NAME --url URL --token-env VAR"
            )
        return await _Remote(Server(record.url, None, _SECONDS)).run(name)

    async def _documents(self, schedules: Sequence[Schedule]) -> Sequence[Document]:
        import msgspec

        from noetl.runtime.schedules.views import views_of

        with contextlib.suppress(Unavailable):  # somebody is writing: what is there is still worth showing
            await self._embedded.projector.catch_up()
        found: Sequence[Document] = msgspec.to_builtins(await views_of(self._embedded, schedules))
        return found


def _route(name: str) -> str:
    return f"{_ROUTE}/{quote(name, safe='')}"
