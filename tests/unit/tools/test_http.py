"""The http tool against real servers on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from noetl.tools.base import Call, Outcome
from noetl.tools.http import HttpTool, Limits
from tests.services.http import Server, serving
from tests.unit.tools.example import run_example

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


@pytest.fixture
async def tool() -> AsyncIterator[HttpTool]:
    made = HttpTool(now=lambda: NOW, limits=Limits(in_memory=1 << 20))
    yield made
    await made.close()


async def ask(tool: HttpTool, url: str, *, scratch: Path = Path(), auth: Any = None, **fields: Any) -> Outcome:
    return await tool.run(
        Call(kind="http", fields={"url": url, **fields}, auth=auth, effect_key="run/1/start/0", scratch=scratch)
    )


def error_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error is not None
    return outcome.error


def content_of(path: str) -> bytes:
    return Path(path).read_bytes()


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


class TestResult:
    async def test_its_shape(self, tool: HttpTool, server: Server) -> None:
        server.answer("/x", text='{"a": 1}', content_type="application/json", headers={"X-Mine": "1"})
        outcome = await ask(tool, f"{server.url}/x", params={"q": 1})
        assert outcome.status == "ok"
        assert set(outcome.result) == {"status_code", "headers", "url", "elapsed", "data", "body"}
        assert outcome.result["status_code"] == 200
        assert outcome.result["url"] == f"{server.url}/x?q=1"
        assert outcome.result["data"] == outcome.result["body"] == {"a": 1}
        assert outcome.result["headers"]["x-mine"] == "1"
        assert outcome.result["elapsed"] > 0
        assert outcome.extra == {"http": {"status": 200, "headers": outcome.result["headers"]}}
        assert server.last.headers["Idempotency-Key"] == "run/1/start/0"

    @pytest.mark.parametrize(
        ("body", "content_type", "expected"),
        [
            (b'{"a": 1}', "application/json; charset=utf-8", {"a": 1}),
            (b"[1]", "application/problem+json", [1]),
            (b'\xef\xbb\xbf{"a": 1}', "application/json", {"a": 1}),
            (b"{broken", "application/json", "{broken"),
            (b'{"a": NaN}', "application/json", '{"a": NaN}'),
            (b'"\\ud800"', "application/json", '"\\ud800"'),
            (b'{"a": 1}', "text/plain", '{"a": 1}'),
            ("grün".encode("latin-1"), "text/plain; charset=latin-1", "grün"),
            (b"x", "text/plain; charset=no-such", "x"),
            (b"\xff\xfe", "application/octet-stream", "\ufffd\ufffd"),
            (b"", "application/json", None),
        ],
    )
    async def test_how_a_body_is_read(
        self, tool: HttpTool, server: Server, body: bytes, content_type: str, expected: Any
    ) -> None:
        server.answer("/", body=body, headers={"Content-Type": content_type})
        assert (await ask(tool, server.url)).result["data"] == expected

    async def test_a_compressed_body_is_unpacked(self, tool: HttpTool, server: Server) -> None:
        async def packed(_: web.Request) -> web.Response:
            response = web.json_response({"a": 1})
            response.enable_compression(web.ContentCoding.gzip)
            return response

        server.answers["/"] = packed
        assert (await ask(tool, server.url)).result["data"] == {"a": 1}

    async def test_a_header_that_comes_twice_is_one(self, tool: HttpTool, server: Server) -> None:
        server.answer("/", headers=[("X-A", "1"), ("x-a", "2")])
        assert (await ask(tool, server.url)).result["headers"]["x-a"] == "1, 2"

    async def test_cookies_are_not_carried_from_one_task_to_the_next(self, tool: HttpTool, server: Server) -> None:
        server.answer("/", headers={"Set-Cookie": "a=1"})
        await ask(tool, server.url)
        await ask(tool, server.url)
        assert "Cookie" not in server.last.headers


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "kind", "retryable"),
        [
            (304, "client_error", False), (400, "client_error", False), (401, "auth", False), (403, "auth", False),
            (404, "not_found", False), (408, "timeout", True), (409, "client_error", False),
            (429, "rate_limit", True), (500, "server_error", True), (503, "server_error", True),
        ],
    )  # fmt: skip
    async def test_by_status(self, tool: HttpTool, server: Server, status: int, kind: str, retryable: bool) -> None:
        server.answer("/", status)
        outcome = await ask(tool, f"{server.url}?token=hush")
        error = error_of(outcome)
        assert (error["kind"], error["code"], error["retryable"]) == (kind, f"HTTP_{status}", retryable)
        assert error["status"] == error["status_code"] == outcome.extra["http"]["status"] == status
        assert outcome.result["status_code"] == status
        assert "hush" not in error["message"]

    async def test_the_body_of_an_error_is_kept(self, tool: HttpTool, server: Server) -> None:
        server.answer("/", 422, text='{"why": "no"}', content_type="application/json")
        assert (await ask(tool, server.url)).result["data"] == {"why": "no"}

    @pytest.mark.parametrize(
        ("header", "expected"),
        [("7", 7), ("Thu, 01 Jan 2026 00:01:30 GMT", 90), ("Wed, 31 Dec 2025 00:00:00 GMT", 0), ("later", None)],
    )
    async def test_retry_after(self, tool: HttpTool, server: Server, header: str, expected: int | None) -> None:
        server.answer("/", 429, headers={"Retry-After": header})
        assert error_of(await ask(tool, server.url)).get("retry_after") == expected

    async def test_a_refused_connection(self, tool: HttpTool) -> None:
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            outcome = await ask(tool, f"http://127.0.0.1:{reserved.getsockname()[1]}/")
        assert (error_of(outcome)["kind"], error_of(outcome)["retryable"]) == ("connection", True)
        assert outcome.extra == {"http": {"status": None, "headers": {}}}

    async def test_a_name_that_does_not_resolve(self) -> None:
        tool = HttpTool(resolver=lambda: Names({}))
        assert error_of(await ask(tool, "http://nowhere.example/"))["kind"] == "connection"
        await tool.close()

    async def test_a_server_that_hangs_up(self, tool: HttpTool, server: Server) -> None:
        async def hang_up(request: web.Request) -> web.Response:
            assert request.transport
            request.transport.abort()
            return web.Response()

        server.answers["/"] = hang_up
        assert error_of(await ask(tool, server.url, method="POST"))["kind"] == "connection"

    async def test_an_answer_that_stops_half_way(self, tool: HttpTool, server: Server) -> None:
        async def stop(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b"half")
            assert request.transport
            request.transport.close()
            return response

        server.answers["/"] = stop
        assert error_of(await ask(tool, server.url))["kind"] == "connection"

    async def test_a_deadline(self, tool: HttpTool, server: Server) -> None:
        async def never(_: web.Request) -> web.Response:
            await asyncio.Event().wait()
            return web.Response()

        server.answers["/"] = never
        error = error_of(await ask(tool, server.url, timeout="50ms"))
        assert (error["kind"], error["code"], error["retryable"]) == ("timeout", "TIMEOUT", True)

    async def test_the_deadline_covers_the_body(self, tool: HttpTool, server: Server) -> None:
        async def trickle(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"some")
            await asyncio.Event().wait()
            return response

        server.answers["/"] = trickle
        assert error_of(await ask(tool, server.url, timeout=0.1))["kind"] == "timeout"

    async def test_a_bad_field_is_an_outcome(self, tool: HttpTool) -> None:
        outcome = await ask(tool, "nonsense")
        assert (error_of(outcome)["kind"], "http" in outcome.extra) == ("schema", True)


class TestConnections:
    async def test_they_are_kept_and_used_again(self, tool: HttpTool, server: Server) -> None:
        for _ in range(5):
            await ask(tool, server.url)
        assert len({seen.peer for seen in server.seen}) == 1

    async def test_their_number_per_host_is_bounded(self, server: Server) -> None:
        tool = HttpTool(limits=Limits(per_host=2))
        both = asyncio.Event()

        async def meet(_: web.Request) -> web.Response:
            if len(server.seen) >= 2:
                both.set()
            await both.wait()
            return web.Response()

        server.answers["/"] = meet
        await asyncio.gather(*(ask(tool, server.url) for _ in range(8)))
        assert len({seen.peer for seen in server.seen}) == 2
        await tool.close()

    def test_every_event_loop_has_its_own(self) -> None:
        tool = HttpTool()

        async def once() -> None:
            async with serving() as server:
                assert (await ask(tool, server.url)).status == "ok"

        async def twice() -> None:
            await once()
            await tool.close()

        asyncio.run(once())
        asyncio.run(twice())

    async def test_a_cancelled_call_leaves_the_tool_usable(self, tool: HttpTool, server: Server) -> None:
        never = asyncio.Event()

        async def wait(_: web.Request) -> web.Response:
            await never.wait()
            return web.Response()

        server.answers["/slow"] = wait
        running = asyncio.create_task(ask(tool, f"{server.url}/slow"))
        await server.arrived.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await ask(tool, server.url)).status == "ok"


class TestRedirects:
    async def test_they_are_not_followed_unless_asked_for(self, tool: HttpTool, server: Server) -> None:
        server.answer("/a", 302, headers={"Location": "/b"})
        outcome = await ask(tool, f"{server.url}/a")
        assert (error_of(outcome)["kind"], outcome.result["headers"]["location"]) == ("client_error", "/b")

    @pytest.mark.parametrize(
        ("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")]
    )
    async def test_method_and_body_follow_the_status(
        self, tool: HttpTool, server: Server, status: int, method: str
    ) -> None:
        server.answer("/a", status, headers={"Location": "/b?x=1"})
        outcome = await ask(tool, f"{server.url}/a", method="POST", json={"a": 1}, follow_redirects=True)
        assert outcome.result["url"] == f"{server.url}/b?x=1"
        assert (server.last.method, server.last.body) == (method, b'{"a":1}' if method == "POST" else b"")
        assert ("Content-Type" in server.last.headers) is (method == "POST")

    async def test_credentials_do_not_go_to_another_origin(self, tool: HttpTool, server: Server) -> None:
        auth = {"a": {"type": "bearer", "token": "t"}, "b": {"type": "api_key", "key": "k"}}
        async with serving() as other:
            server.answer("/away", 302, headers={"Location": f"{other.url}/"})
            server.answer("/near", 302, headers={"Location": "/"})
            await ask(tool, f"{server.url}/near", auth=auth, follow_redirects=True)
            assert {"Authorization", "X-API-Key"} <= set(server.last.headers)
            await ask(tool, f"{server.url}/away", auth=auth, follow_redirects=True)
            assert not {"Authorization", "X-API-Key"} & set(other.last.headers)

    async def test_a_circle_ends(self, tool: HttpTool, server: Server) -> None:
        server.answer("/a", 302, headers={"Location": "/a"})
        error = error_of(await ask(tool, f"{server.url}/a", follow_redirects=True))
        assert (error["code"], error["retryable"], len(server.seen)) == ("TOO_MANY_REDIRECTS", False, 11)

    async def test_only_http_is_followed(self, tool: HttpTool, server: Server) -> None:
        server.answer("/a", 302, headers={"Location": "file:///etc/passwd"})
        assert error_of(await ask(tool, f"{server.url}/a", follow_redirects=True))["code"] == "HTTP_302"


class Names(AbstractResolver):
    """DNS as somebody hostile would answer it."""

    def __init__(self, addresses: dict[str, list[str]]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host not in self._addresses:
            raise OSError(None, f"{host} is not known")
        return [
            ResolveResult(hostname=host, host=address, port=port, proto=0, flags=socket.AI_NUMERICHOST,
                          family=socket.AF_INET6 if ":" in address else socket.AF_INET)
            for address in self._addresses[host]
        ]  # fmt: skip

    async def close(self) -> None:
        pass


class TestBlockedAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "http://169.254.169.254/latest/meta-data/",
            "http://[fe80::1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://0xa9fea9fe/",
            "http://metadata.google.internal./computeMetadata/v1/",
        ],
    )
    async def test_in_every_spelling(self, tool: HttpTool, url: str) -> None:
        error = error_of(await ask(tool, url, timeout=5))
        assert (error["code"], error["retryable"]) == ("ADDRESS_BLOCKED", False)

    async def test_as_one_number(self, tool: HttpTool) -> None:
        assert error_of(await ask(tool, "http://2852039166/", timeout=5))["code"] in ("ADDRESS_BLOCKED", "URL_INVALID")

    @pytest.mark.parametrize("addresses", [["169.254.169.254"], ["169.254.1.1", "fe80::1"]])
    async def test_behind_an_innocent_name(self, addresses: list[str]) -> None:
        tool = HttpTool(resolver=lambda: Names({"innocent.example": addresses}))
        assert error_of(await ask(tool, "http://innocent.example/", timeout=5))["code"] == "ADDRESS_BLOCKED"
        await tool.close()

    async def test_behind_a_redirect(self, tool: HttpTool, server: Server) -> None:
        server.answer("/", 302, headers={"Location": "http://169.254.169.254/latest/"})
        outcome = await ask(tool, server.url, follow_redirects=True, timeout=5)
        assert error_of(outcome)["code"] == "ADDRESS_BLOCKED"

    async def test_a_name_that_changes_its_address_between_two_requests(self, server: Server) -> None:
        addresses = {"rebound.example": ["127.0.0.1"]}
        tool = HttpTool(resolver=lambda: Names(addresses), limits=Limits(keep_alive=0.001))
        url = f"http://rebound.example:{server.port}/"
        assert (await ask(tool, url)).status == "ok"
        addresses["rebound.example"] = ["169.254.169.254"]
        await tool.close()  # and with it the connection and what was remembered of the name
        assert error_of(await ask(tool, url, timeout=5))["code"] == "ADDRESS_BLOCKED"
        await tool.close()

    async def test_they_can_be_allowed(self) -> None:
        tool = HttpTool(allow_link_local=True, resolver=lambda: Names({"metadata.google.internal": ["127.0.0.1"]}))
        async with serving() as server:
            assert (await ask(tool, f"http://metadata.google.internal:{server.port}/")).status == "ok"
        await tool.close()


class TestTls:
    @pytest.fixture
    async def secure(self) -> AsyncIterator[Server]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
        async with serving(context=context) as running:
            yield running

    async def test_a_certificate_nobody_vouches_for_is_a_connection_error(self, tool: HttpTool, secure: Server) -> None:
        error = error_of(await ask(tool, secure.url))
        assert (error["kind"], error["code"]) == ("connection", "TLS_FAILED")
        assert "certificate" in error["message"].lower()
        assert secure.seen == []

    @pytest.mark.parametrize("flag", ["verify_ssl", "verify"])
    async def test_unless_the_task_does_not_care(self, tool: HttpTool, secure: Server, flag: str) -> None:
        fields: dict[str, Any] = {flag: False}
        assert (await ask(tool, secure.url, **fields)).status == "ok"
        assert error_of(await ask(tool, secure.url))["code"] == "TLS_FAILED"

    async def test_a_server_that_does_not_speak_tls(self, tool: HttpTool, server: Server) -> None:
        error = error_of(await ask(tool, server.url.replace("http:", "https:")))
        assert (error["kind"], error["code"]) == ("connection", "TLS_FAILED")


class TestLargeBodies:
    PIECE = os.urandom(1 << 16)

    @pytest.fixture
    def streaming(self, server: Server) -> Server:
        async def stream(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/x-rows"})
            await response.prepare(request)
            for _ in range(int(request.query["pieces"])):
                await response.write(self.PIECE)
            return response

        server.answers["/"] = stream
        return server

    async def test_they_go_to_a_file(self, tool: HttpTool, streaming: Server, tmp_path: Path) -> None:
        outcome = await ask(tool, streaming.url, params={"pieces": 40}, scratch=tmp_path / "of-the-run")
        file = outcome.result["_file"]
        content = self.PIECE * 40
        assert not {"data", "body"} & set(outcome.result)
        assert Path(file["path"]).parent == tmp_path / "of-the-run"
        assert content_of(file["path"]) == content
        assert file | {"path": ""} == {
            "path": "", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
            "content_type": "application/x-rows",
        }  # fmt: skip

    async def test_a_body_of_the_limit_stays_in_memory(self, tool: HttpTool, streaming: Server, tmp_path: Path) -> None:
        outcome = await ask(tool, streaming.url, params={"pieces": 16}, scratch=tmp_path)
        assert ("data" in outcome.result, files_in(tmp_path)) == (True, [])

    async def test_memory_does_not_grow_with_the_body(self, tool: HttpTool, streaming: Server, tmp_path: Path) -> None:
        await ask(tool, streaming.url, params={"pieces": 32}, scratch=tmp_path)
        tracemalloc.start()
        outcome = await ask(tool, streaming.url, params={"pieces": 1024}, scratch=tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert outcome.result["_file"]["bytes"] == 64 << 20
        assert peak < 16 << 20

    async def test_a_body_without_end_is_refused_and_its_file_removed(self, streaming: Server, tmp_path: Path) -> None:
        tool = HttpTool(limits=Limits(in_memory=1 << 16, in_file=4 << 20))
        error = error_of(await ask(tool, streaming.url, params={"pieces": 1024}, scratch=tmp_path))
        assert (error["kind"], error["code"], files_in(tmp_path)) == ("storage_quota", "BODY_TOO_LARGE", [])
        await tool.close()

    async def test_a_place_that_cannot_be_written_is_said(
        self, tool: HttpTool, streaming: Server, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        error = error_of(await ask(tool, streaming.url, params={"pieces": 40}, scratch=tmp_path / "file"))
        assert error["kind"] == "storage_access"


def test_the_tool_is_side_effecting_whatever_the_method() -> None:
    assert HttpTool().side_effecting({"method": "GET"})


async def test_the_example_of_its_page_runs(tool: HttpTool, server: Server, tmp_path: Path) -> None:
    server.answer("/rates", text='{"rates": [1.1]}', content_type="application/json")
    await run_example(tool, home=tmp_path, workload={"api": server.url})
    assert [(seen.raw, seen.body) for seen in server.seen] == [
        ("/rates?currency=EUR&currency=USD", b""), ("/published", b'{"rates":[1.1]}'),
    ]  # fmt: skip
