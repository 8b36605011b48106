"""The API is what its description says: generated requests get the answers that are promised."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from noetl.server.running import bind
from tests.unit.server.api import Api, book, open_api, step

OURS = (
    "/api/execut",
    "/api/vars",
    "/api/result",
    "/api/temp",
    "/api/replay",
    "/api/aggregate",
    "/api/context",
    "/api/events/batch",
    "/health",
)
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """The application behind a socket, in a thread with a loop of its own, with one execution to be asked about."""
    listening = bind("127.0.0.1", 0)
    ready = threading.Event()
    stop: list[uvicorn.Server] = []

    async def serve() -> None:
        async with open_api(folder) as api:
            await api.run(book(step("a", set={"ctx.k": 1}), path="t"))
            config = uvicorn.Config(api.app, log_config=None, access_log=False, lifespan="off")
            stop.append(uvicorn.Server(config))
            ready.set()
            await stop[0].serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        stop[0].should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def api_schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with _serving(tmp_path_factory.mktemp("api")) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        yield schema.include(path_regex=f"^({'|'.join(OURS)})").exclude(path_regex="stream$")


def test_generated_requests_are_answered_as_described(api_schema: Any) -> None:
    operations = [found.ok() for found in api_schema.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def check(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        check()


async def test_every_route_says_what_it_answers(api: Api) -> None:
    description = (await api.client.get("/openapi.json")).json()
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            content = operation["responses"]["200"]["content"]
            assert any(media.get("schema") for media in content.values()) or "text/plain" in content, (method, path)
    schemas = description["components"]["schemas"]
    named = {name.split('"')[0] for name in json.dumps(description).split("#/components/schemas/")[1:]}
    assert named <= set(schemas)
