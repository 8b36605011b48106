"""A listening server, from its start to its drained end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from noetl.errors import Unavailable
from noetl.runtime.duties import serve_duties
from noetl.runtime.process import settle_down
from noetl.runtime.service import Services

__all__ = ["bind", "serve"]

_BACKLOG = 2048
_INTERRUPTED = 130
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0

_log = logging.getLogger("noetl.server")


def bind(host: str, port: int) -> socket.socket:
    """Take an address, before anything else is begun; port 0 takes any that is free. Raises Unavailable."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}: {error.strerror}", hint="choose another --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.set_inheritable(False)
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="another program has it; choose another --port"
        ) from None
    return listening


async def serve(
    app: FastAPI,
    services: Services,
    listening: socket.socket,
    *,
    drain: float,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests and work on executions until SIGTERM or SIGINT, then drain. A second signal ends at once.

    Draining: no new connection, streams end, requests that are being answered are answered, commands that run may
    finish for so many seconds. What is left stands in the log, and the next server takes it up.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=max(1, int(drain)),
        timeout_keep_alive=30,
    )
    leaving = asyncio.Event()
    server = _Server(config, on_ready, leaving.set)
    taking_up = asyncio.create_task(_begin(services))
    draining = asyncio.create_task(_drain(app, services, leaving, taking_up, drain))
    settle_down()
    try:
        await server.serve(sockets=[listening])
    finally:
        leaving.set()
        await draining


async def _drain(
    app: FastAPI, services: Services, leaving: asyncio.Event, taking_up: asyncio.Task[None], seconds: float
) -> None:
    """From the first signal on: beside the requests that are still being answered, not after them."""
    await leaving.wait()
    app.state.closing.set()
    taking_up.cancel()
    await asyncio.gather(taking_up, return_exceptions=True)
    await services.drain(seconds)


async def _begin(services: Services) -> None:
    """What a server does unasked, until it is to end."""
    await asyncio.gather(_take_up(services), serve_duties(services))


async def _take_up(services: Services) -> None:
    """Go on with what was left running; while the ledger is away, again and again, for nobody else will."""
    pause = _FIRST_PAUSE
    while True:
        try:
            taken = await services.take_up()
        except Unavailable as error:
            _log.warning("executions that were left running are not all taken up yet: %s", error)
        except Exception as error:  # nobody awaits this task, and the server is of use all the same
            _log.error("executions that were left running could not be taken up", exc_info=error)
            return
        else:
            if taken:
                _log.info("%d executions that were left running go on", taken)
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Server(uvicorn.Server):
    """Ends by our own rules: with exit code 0 at a first signal, and at once by a second."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_leaving: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_leaving = on_leaving
        self._asked = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT from now on, draining included."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)
        yield

    def _leave(self) -> None:
        if self._asked:
            os._exit(_INTERRUPTED)
        self._asked = self.should_exit = True
        self._on_leaving()
