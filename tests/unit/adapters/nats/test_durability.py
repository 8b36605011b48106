"""Whether a NATS may keep a log, as far as its monitoring pages say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from noetl.adapters.nats.durability import check_durability
from noetl.errors import InvalidSetting, Unavailable

SAFE = {"jetstream": {"config": {"sync_always": True, "sync_interval": 120_000_000_000}}}
UNSAFE = {"jetstream": {"config": {"sync_interval": 120_000_000_000}}}


class Monitor:
    """Pages that say what a test wants them to."""

    said: Any = SAFE
    address = ""


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    found = Monitor()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = found.said if isinstance(found.said, bytes) else json.dumps(found.said).encode()
            self.send_response(200 if self.path == "/varz" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_server_that_writes_first_is_fine(monitor: Monitor) -> None:
    await check_durability(monitor.address)
    await check_durability(f"{monitor.address}/, {monitor.address}")


@pytest.mark.parametrize(
    ("said", "reason"),
    [(UNSAFE, "every 2m"), ({}, "without JetStream"), ({"jetstream": {}}, "without JetStream")],
)
async def test_one_that_may_lose_what_it_took_is_refused(monitor: Monitor, said: object, reason: str) -> None:
    monitor.said = said
    with pytest.raises(InvalidSetting, match=reason) as refused:
        await check_durability(monitor.address)
    assert refused.value.hint


async def test_what_is_not_known_is_refused_too(monitor: Monitor) -> None:
    with pytest.raises(InvalidSetting, match=r"nats\.monitor is not set"):
        await check_durability(None)
    with pytest.raises(InvalidSetting, match="no address of a web page"):
        await check_durability("file:///etc/passwd")
    monitor.said = b"<html>"
    with pytest.raises(Unavailable, match="do not answer"):
        await check_durability(monitor.address)
    with pytest.raises(Unavailable, match="do not answer"):
        await check_durability("http://127.0.0.1:1")
