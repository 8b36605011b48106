"""Whether an API is what its description says: generated requests, and the answers that are promised."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from noetl.server.internal import ServiceToken
from noetl.server.running import bind
from noetl.settings import Settings
from tests.unit.server.api import book, open_api, step

__all__ = ["EXAMPLES", "check_promises", "served"]

EXAMPLES = int(os.environ.get("NOETL_TEST_EXAMPLES", "12"))
"""How many requests are made of each operation; many more where there is time for them."""
SERVICE = "5e7ce" * 10
_CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]


@contextlib.contextmanager
def served(folder: Path, home: Settings | None = None, *, lease: float | None = None) -> Iterator[str]:
    """The application behind a socket, in a thread with a loop of its own, with executions to be asked about."""
    listening = bind("127.0.0.1", 0)
    ready = threading.Event()
    stop: list[uvicorn.Server] = []

    async def serve() -> None:
        async with open_api(folder, home, lease=lease, service_token=ServiceToken(SERVICE)) as api:
            document = book(step("a", set={"ctx.k": 1}), path="t")
            await (api.start(document) if lease is not None else api.run(document))
            config = uvicorn.Config(api.app, log_config=None, access_log=False, lifespan="off")
            stop.append(uvicorn.Server(config))
            ready.set()
            await stop[0].serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        stop[0].should_exit = True
        thread.join()
        listening.close()


def check_promises(url: str, paths: str = "", examples: int = EXAMPLES) -> int:
    """Ask every operation whose path begins like this, streams apart; how many there were."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found = schema.include(path_regex=f"^({paths})").exclude(path_regex="stream$")
    results: list[Any] = list(found.get_all_operations())
    operations = [one.ok() for one in results]
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def check(case: Any) -> None:
            case.call_and_validate(checks=_CHECKS, headers={"Authorization": f"Bearer {SERVICE}"})

        check()
    return len(operations)
