"""A home's server: everything that `noetl server` puts together, from the lock to the last log line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from noetl import __version__
from noetl.adapters.memory.access import AllowAll, RoleAccess
from noetl.kernel.time import format_time
from noetl.observe import metrics
from noetl.observe.logs import start_logging
from noetl.observe.otel import recorded
from noetl.observe.prometheus import PrometheusRecorder
from noetl.runtime.binding import check_binding
from noetl.runtime.callers import local_caller
from noetl.runtime.clock import SystemClock
from noetl.runtime.custody import custody_of
from noetl.runtime.home import Home
from noetl.runtime.installation import Means, join
from noetl.runtime.presence import Presence, ServerRecord
from noetl.runtime.service import Workplace, open_services
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.server.app import build_app
from noetl.server.auth import LoopbackOnly, TokenHolders
from noetl.server.internal import service_token_of
from noetl.server.running import bind, serve
from noetl.settings import Settings
from noetl.tools.secrets.logs import RedactingFilter
from noetl.tools.secrets.wallet import wallet_keys

__all__ = ["host_home"]

_LEAST_SLOTS = 4
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to reach a server that listens everywhere


async def host_home(
    home: Home, settings: Settings, on_ready: Callable[[ServerRecord], None], *, console: bool = True
) -> None:
    """Serve a home until this process is asked to end.

    Raises InvalidInput if it may not listen there or has a server already, Unavailable if the port is taken. Nothing
    is changed before that is known.
    """
    server = settings.server
    check_binding(server.host, server.port, server.auth)
    service_token = service_token_of(os.environ)
    home.create()
    async with contextlib.AsyncExitStack() as opened:
        presence = opened.enter_context(Presence(home.path).held())
        listening = opened.enter_context(bind(server.host, server.port))
        record = _record(settings, listening.getsockname()[1])
        logging_ends = start_logging(home.path / "logs" / "server.log", RedactingFilter(), console=console)
        opened.callback(logging_ends)
        recorder = PrometheusRecorder()
        metrics.install(recorder)
        opened.callback(metrics.uninstall)
        opened.enter_context(recorded(settings.observe.otlp, "noetl-server"))
        embedded = await opened.enter_async_context(open_embedded(home, settings, create=True))
        if settings.ledger.url is not None:
            await join(_means(embedded, home, settings))
        await custody_of(embedded, settings).settle(local_caller(settings))
        place = Workplace(
            home=home.path,
            directory=Path.cwd(),
            slots=server.workers or _slots(),
            server_url=record.url,
            lease_seconds=server.lease if server.workers == 0 else None,
            is_shared=settings.ledger.url is not None,
        )
        services = await opened.enter_async_context(open_services(embedded, settings, place))
        by_token = server.auth == "token"
        app = build_app(
            services,
            settings,
            admit=TokenHolders(embedded.tokens, embedded.clock)
            if by_token
            else LoopbackOnly(local_caller(settings), [server.host]),
            access=RoleAccess() if by_token else AllowAll(),
            recorder=recorder,
            service_token=service_token,
        )

        def ready() -> None:
            opened.enter_context(presence.announced(record))
            on_ready(record)

        await serve(app, services, listening, drain=server.drain, on_ready=ready)


def _means(embedded: Embedded, home: Home, settings: Settings) -> Means:
    return Means(
        kv=embedded.kv,
        credentials=embedded.credentials,
        ledger_key=home.mac_key(),
        wallet_keys=wallet_keys(home.wallet, os.environ),
        objects=embedded.objects,
        store=settings.payloads.url or str(home.payloads),
    )


def _record(settings: Settings, port: int) -> ServerRecord:
    host = settings.server.host.strip("[]")
    reached = _WILDCARDS.get(host, host)
    return ServerRecord(
        pid=os.getpid(),
        host=host,
        port=port,
        url=f"http://{f'[{reached}]' if ':' in reached else reached}:{port}",
        auth=settings.server.auth,
        started_at=format_time(SystemClock().now()),
        version=__version__,
    )


def _slots() -> int:
    return max(_LEAST_SLOTS, 2 * (os.cpu_count() or 1))
