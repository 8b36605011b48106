"""The way to a token endpoint: bounded in time and size, and never led elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from noetl.errors import Unavailable
from noetl.tools.http.tokens import TokenClient
from noetl.tools.secrets.oauth import fetch_token
from tests.services.http import Server, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[TokenClient]:
    made = TokenClient(seconds=0.5)
    yield made
    await made.close()


def entry(server: Server) -> dict[str, object]:
    return {"endpoint": f"{server.url}/token", "data": {"client_secret": "s3cr3t-of-ours", "grant_type": "x"}}


async def test_a_token(server: Server, client: TokenClient) -> None:
    server.answer("/token", text='{"access_token": "t", "expires_in": 60}', content_type="application/json")
    held = await fetch_token(client, entry(server), 0)
    assert (held.fields["access_token"], held.expires_at) == ("t", 60_000_000)
    assert server.last.method == "POST"
    assert server.last.body == b"client_secret=s3cr3t-of-ours&grant_type=x"
    assert server.last.headers["Content-Type"] == "application/x-www-form-urlencoded"


async def test_a_redirect_is_not_followed(server: Server, client: TokenClient) -> None:
    server.answer("/token", status=307, headers={"Location": f"{server.url}/elsewhere"})
    with pytest.raises(Unavailable, match="answered 307"):
        await fetch_token(client, entry(server), 0)
    assert [seen.path for seen in server.seen] == ["/token"]


async def test_an_endpoint_that_takes_too_long(server: Server, client: TokenClient) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    server.answers["/token"] = never
    with pytest.raises(Unavailable, match="does not answer: TimeoutError"):
        await fetch_token(client, entry(server), 0)


async def test_an_answer_that_is_no_token(server: Server, client: TokenClient) -> None:
    server.answer("/token", body=b"x" * ((1 << 20) + 1))
    with pytest.raises(Unavailable, match="does not answer: TooLarge"):
        await fetch_token(client, entry(server), 0)


async def test_link_local_addresses_are_blocked(client: TokenClient) -> None:
    with pytest.raises(Unavailable) as refused:
        await fetch_token(client, {"endpoint": "http://169.254.169.254/token", "data": {"a": "s3cr3t-of-ours"}}, 0)
    assert "s3cr3t-of-ours" not in str(refused.value)


async def test_what_the_endpoint_says_is_told_and_what_was_sent_is_not(server: Server, client: TokenClient) -> None:
    server.answer("/token", status=401, text='{"error": "invalid_client", "error_description": "who are you"}')
    with pytest.raises(Unavailable, match="answered 401: invalid_client - who are you") as refused:
        await fetch_token(client, entry(server), 0)
    assert "s3cr3t-of-ours" not in str(refused.value)
