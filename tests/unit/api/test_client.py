"""The client against a server that has bad moments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from noetl.api import client as module
from noetl.api.client import Client, address_of
from noetl.errors import InvalidInput, NotFound, Unavailable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Moody:
    """Answers with what it was told to, one after the other; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Handler] = []
        self.asked: list[web.Request] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return await self.answers.pop(0)(request)

    def says(self, *answers: tuple[int, object] | None) -> None:
        """A status and a document each; None hangs up."""
        for said in answers:
            self.answers.append(hang_up if said is None else answer(*said))


def answer(status: int, document: object) -> Handler:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status)

    return reply


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    raise asyncio.CancelledError


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Moody]:
    monkeypatch.setattr(module, "_PAUSE", 0.001)
    moody = Moody()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", moody.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    moody.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield moody
    await runner.cleanup()


@pytest.fixture
async def client(server: Moody) -> AsyncIterator[Client]:
    async with Client(server.url, "t0ken", 5.0) as opened:
        yield opened


async def test_a_question_is_asked_again_after_a_bad_moment(server: Moody, client: Client) -> None:
    server.says(None, (503, {}), (200, {"n": 1}))
    assert await client.get("/x", a=1, b=None) == {"n": 1}
    assert [str(request.rel_url) for request in server.asked] == ["/x?a=1"] * 3
    assert server.asked[0].headers["Authorization"] == "Bearer t0ken"


async def test_a_question_is_not_asked_for_ever(server: Moody, client: Client) -> None:
    server.says(*[(503, {"detail": "busy"})] * 4)
    with pytest.raises(Unavailable, match="answered 503: busy"):
        await client.get("/x")


async def test_a_refusal_is_final(server: Moody, client: Client) -> None:
    server.says((404, {"detail": "not there"}))
    with pytest.raises(NotFound, match="not there"):
        await client.get("/x")
    assert len(server.asked) == 1


async def test_only_what_may_be_repeated_is_sent_again(server: Moody, client: Client) -> None:
    server.says(None, (200, {}))
    with pytest.raises(Unavailable, match="cannot be reached"):
        await client.post("/x", {})
    assert await client.post("/x", {}) == {}
    server.says(None, (200, {"n": 1}))
    assert await client.post("/x", {}, headers={"Idempotency-Key": "k"}, repeatable=True) == {"n": 1}
    assert [request.headers.get("Idempotency-Key") for request in server.asked[-2:]] == ["k", "k"]


async def test_something_else_at_that_address_is_said(server: Moody, client: Client) -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>", content_type="text/html")

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/login")

    server.answers = [page, elsewhere]
    with pytest.raises(InvalidInput, match="is not a NoETL server"):
        await client.get("/x")
    with pytest.raises(InvalidInput, match="points elsewhere"):
        await client.get("/x")


async def test_a_stream_begins_after_what_was_seen_and_ends_with_the_connection(server: Moody, client: Client) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": still here\n\nid: 8\ndata: x\n\n")
        return response

    server.answers = [stream]
    assert [(one.data, one.last_id) async for one in client.stream("/s", "7")] == [("x", "8")]
    assert server.asked[0].headers["Last-Event-ID"] == "7"


async def test_nobody_there() -> None:
    async with Client("http://127.0.0.1:1", None, 5.0) as client:
        with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1 cannot be reached"):
            await client.post("/x", {})


@pytest.mark.parametrize("url", ["http://h:8082", "http://h:8082/", "http://h:8082/api", "http://h:8082/api/"])
def test_an_address_is_understood_however_it_is_written(url: str) -> None:
    assert address_of(url) == "http://h:8082"


@pytest.mark.parametrize("url", ["h:8082", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        address_of(url)
