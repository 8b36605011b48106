"""The API is what its description says: generated requests get the answers that are promised."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.unit.server.api import Api
from tests.unit.server.promises import check_promises, served

ROOMS = {
    "executions": ("/api/execut", 12),
    "values": ("/api/(vars|result|temp|replay|aggregate|context)", 11),
    "records": ("/api/(catalog|credentials(?!/resolve)|keychain)", 9),
    "batches": ("/api/events", 3),
    "rest": ("(?!/api/(execut|vars|result|temp|replay|aggregate|context|catalog|credentials|keychain|events))", 15),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("api")) as found:
        yield found


@pytest.mark.parametrize("room", ROOMS)
def test_generated_requests_are_answered_as_described(url: str, room: str) -> None:
    paths, least = ROOMS[room]
    assert check_promises(url, paths) >= least


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
