"""A connection to NATS that comes back by itself, and what it says when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from noetl.adapters.nats.inboxes import Inboxes
from noetl.errors import AccessRefused, InvalidInput, NoetlError, StorageFull, Unavailable

__all__ = ["TIMEOUT", "Connection", "connect"]

T = TypeVar("T")

TIMEOUT = 5.0
_RETRY_SECONDS = 0.25
_LOOK_SECONDS = 0.02
_ANY_FLUSH_SECONDS = 3600
_DISK_FULL = frozenset({10023, 10047, 10077})  # what JetStream says when it has no room: resources, storage, bytes
_OFF = frozenset({10039, 10076})  # JetStream is not enabled, here or for the account

_log = logging.getLogger("noetl.nats")


class Connection:
    """One client. It reconnects for as long as it is open; meanwhile a call fails when its own time is up."""

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self.client = Client()
        self.lives = 1
        """Grows with every reconnection: the server may have been another one, or the same after a crash."""
        self.lost = asyncio.Event()
        """Set while there is no connection: what was asked over the one before is not answered any more."""
        self.inboxes = Inboxes(self.client)
        self.on_lost: list[Callable[[], None]] = [self.inboxes.lose]
        """Called when it is lost."""
        self._flushes: set[asyncio.Task[None]] = set()

    @property
    def streams(self) -> JetStreamContext:
        """JetStream's own interface."""
        return self.client.jetstream(timeout=self.timeout)

    async def ready(self) -> None:
        """Return once connected. Raises Unavailable if that takes longer than a call may take."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        while not self.client.is_connected or self.lost.is_set():  # it is connected a little before it says so
            if self.client.is_closed or loop.time() > deadline:
                raise self.gone("the connection is lost")
            await asyncio.sleep(_LOOK_SECONDS)

    async def call(self, ask: Callable[[JetStreamContext], Awaitable[T]], patience: float | None = None) -> T:
        """Ask for something that may be asked twice; again if the connection was lost meanwhile, until time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout if patience is None else patience)
        while True:
            await self.ready()
            answer, lost = asyncio.ensure_future(ask(self.streams)), asyncio.ensure_future(self.lost.wait())
            try:
                left = max(0.0, deadline - loop.time())
                await asyncio.wait([answer, lost], timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    return answer.result()
            finally:
                answer.cancel()
                lost.cancel()
                await asyncio.gather(answer, lost, return_exceptions=True)
            if loop.time() >= deadline:
                raise nats.errors.TimeoutError

    async def flush(self) -> None:
        """Return once the server has what was sent. Raises nats' TimeoutError if that takes longer than a call may.

        Whoever waits may be cancelled, or lose patience; what waits for the answer is not: the client stops reading for
        good when one comes that nobody waits for any more.
        """
        flushing = asyncio.create_task(self.client.flush(timeout=_ANY_FLUSH_SECONDS))
        self._flushes.add(flushing)
        flushing.add_done_callback(self._flushed)
        await asyncio.wait([flushing], timeout=self.timeout)
        if not flushing.done():
            raise nats.errors.TimeoutError
        flushing.result()

    def _flushed(self, flushing: asyncio.Task[None]) -> None:
        self._flushes.discard(flushing)
        if not flushing.cancelled():
            flushing.exception()  # whoever wanted to know has seen it

    @contextlib.contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """NATS' errors in the words of this project; `what` was to be done."""
        try:
            yield
        except NoetlError:
            raise
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise self.explain(error, what) from error

    def explain(self, error: BaseException, what: str) -> NoetlError:
        """The error a caller should see."""
        if isinstance(error, nats.js.errors.APIError):
            said = error.description or type(error).__name__
            if error.err_code in _DISK_FULL:
                return StorageFull(
                    f"NATS at {self.address} has no room left: {said}; {what} was not done",
                    hint="give JetStream more storage, or make the streams smaller (nats.keep)",
                )
            nobody = isinstance(error, nats.js.errors.ServiceUnavailableError) and error.err_code is None
            if nobody or error.err_code in _OFF:
                return Unavailable(
                    f"NATS at {self.address} runs without JetStream, or not for this account: {what}",
                    hint="start it with JetStream (-js), and enable it for the account",
                )
            return Unavailable(f"NATS at {self.address} has refused {what}: {said}")
        if isinstance(error, TimeoutError):
            return Unavailable(f"NATS at {self.address} has not answered within {self.timeout:g} s: {what}")
        return self.gone(str(error).removeprefix("nats: ") or type(error).__name__)

    def gone(self, why: str) -> Unavailable:
        """The server cannot be reached."""
        return Unavailable(
            f"NATS at {self.address} cannot be reached: {why}",
            hint="check that it runs and that nats.url leads to it",
        )

    async def close(self) -> None:
        """Send what is on its way, and let go."""
        if self.client.is_connected:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                await self.client.flush(timeout=2)
        # One that never came as far as to have a queue says so by an assertion.
        with contextlib.suppress(AssertionError):
            await self.client.close()
        left = list(self._flushes)
        for flushing in left:
            flushing.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@contextlib.asynccontextmanager
async def connect(
    url: str, *, name: str = "noetl", credentials: str | None = None, patience: float = TIMEOUT
) -> AsyncIterator[Connection]:
    """A connection to the servers of `url`, several with commas between them, closed at the end.

    `credentials` is a file with a user's JWT and seed; `patience` is what any call waits for an answer. Raises
    Unavailable if nobody answers in time, and AccessRefused if we are not let in.
    """
    servers = [part.strip() for part in url.split(",") if part.strip()]
    connection = Connection(_shown(servers), patience)
    last: list[Exception] = []
    refused = asyncio.Event()

    async def on_error(error: Exception) -> None:
        last.append(error)
        del last[:-1]
        if _is_refusal(error):
            refused.set()
        _log.debug("nats: %s", error)

    async def on_disconnected() -> None:
        connection.lost.set()
        for tell in connection.on_lost:
            tell()

    async def on_reconnected() -> None:
        connection.lives += 1
        connection.lost.clear()
        _log.info("the connection to NATS at %s is back", connection.address)

    options: dict[str, Any] = {"user_credentials": _file(credentials)} if credentials else {}
    connecting = asyncio.ensure_future(
        connection.client.connect(
            servers,
            name=name,
            error_cb=on_error,
            disconnected_cb=on_disconnected,
            reconnected_cb=on_reconnected,
            connect_timeout=max(1, int(patience)),
            reconnect_time_wait=_RETRY_SECONDS,  # type: ignore[arg-type]  # it is slept for, and may be a fraction
            max_reconnect_attempts=-1,
            ping_interval=10,
            **options,
        )
    )
    refusing = asyncio.ensure_future(refused.wait())
    try:
        await asyncio.wait([connecting, refusing], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done() or connecting.exception() is not None:
            raise _not_connected(connection, connecting, last)
        yield connection
    finally:
        connecting.cancel()
        refusing.cancel()
        await asyncio.gather(connecting, refusing, return_exceptions=True)
        await connection.close()


def _not_connected(connection: Connection, connecting: asyncio.Future[None], last: list[Exception]) -> NoetlError:
    error = connecting.exception() if connecting.done() else None
    found = error or (last[-1] if last else None)
    if found is not None and _is_refusal(found):
        return AccessRefused(
            f"NATS at {connection.address} does not let us in: {str(found).removeprefix('nats: ')}",
            hint="check the user and password of nats.url, or nats.credentials",
        )
    if isinstance(found, ValueError):
        return InvalidInput(f"nats.url is not an address: {found}", hint="write it as nats://host:4222")
    why = "nobody answers" if found is None or not str(found) else str(found).removeprefix("nats: ")
    return connection.gone(why)


def _file(credentials: str) -> str:
    file = Path(credentials).expanduser()
    if not file.is_file():
        raise InvalidInput(f"there is no file {credentials} with credentials for NATS", hint="check nats.credentials")
    return str(file)


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower()


def _shown(servers: list[str]) -> str:
    """Where we connect, without who we are."""
    shown = []
    for server in servers:
        parts = urlsplit(server if "//" in server else f"nats://{server}")
        shown.append(parts.netloc.rpartition("@")[2] or server)
    return ", ".join(shown) or "no address"
