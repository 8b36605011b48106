"""Sending a body: streamed, with the answer of a server that hangs up early, and clear words for every refusal."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from noetl.cli.upload import Target, post
from noetl.errors import Conflict, Forbidden, InvalidInput, NoetlError, Unauthenticated, Unavailable

PROBLEM = b'{"type":"urn:noetl:problem:%b","title":"t","status":%d,"detail":"why","hint":"what to do"}'


@contextmanager
def answering(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does one thing with one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                handle(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join(timeout=10)


def received(connection: socket.socket) -> bytes:
    """The request: its head, and as much of a body as the head announces."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)


def test_the_body_and_its_headers_arrive() -> None:
    seen: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        seen.append(received(connection))
        connection.sendall(answer(202, b'{"status":"completed"}'))

    with answering(handle) as url:
        target = Target(url=f"{url}/base/api/", token="ntl_secret")
        assert post(target, "/api/x", {"X-A": "1"}, 6, iter([b"abc", b"def"])) == {"status": "completed"}
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/api/x HTTP/1.1")
    assert b"Authorization: Bearer ntl_secret" in head
    assert b"X-A: 1" in head
    assert body == b"abcdef"


def test_a_server_that_answers_before_it_has_everything_is_heard() -> None:
    def handle(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.sendall(answer(413, PROBLEM % (b"RequestEntityTooLarge", 413)))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):  # what is on its way would otherwise reset the connection
            pass

    size = 32 << 20
    with answering(handle) as url, pytest.raises(InvalidInput, match="why"):
        post(Target(url=url), "/api/x", {}, size, (bytes(1 << 20) for _ in range(size >> 20)))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, PROBLEM % (b"Unauthenticated", 401), Unauthenticated),
        (403, PROBLEM % (b"Forbidden", 403), Forbidden),
        (409, PROBLEM % (b"Conflict", 409), Conflict),
        (422, PROBLEM % (b"InvalidInput", 422), InvalidInput),
        (503, PROBLEM % (b"Unavailable", 503), Unavailable),
        (500, b"<html>", Unavailable),
        (404, b"", InvalidInput),
        (200, b"<html>", InvalidInput),
        (301, b"", InvalidInput),
    ],
)
def test_what_is_refused_is_the_error_it_would_be_here(status: int, body: bytes, kind: type[NoetlError]) -> None:
    def handle(connection: socket.socket) -> None:
        received(connection)
        connection.sendall(answer(status, body))

    with answering(handle) as url, pytest.raises(NoetlError) as refused:
        post(Target(url=url), "/api/x", {}, 1, iter([b"x"]))
    assert type(refused.value) is kind, refused.value


def test_a_connection_that_ends_in_the_middle() -> None:
    def handle(connection: socket.socket) -> None:
        received(connection)

    with answering(handle) as url, pytest.raises(Unavailable, match="the connection was closed in the middle"):
        post(Target(url=url), "/api/x", {}, 1, iter([b"x"]))


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unavailable, match="Connection refused") as refused:
        post(Target(url=url), "/api/x", {}, 0, iter([]))
    assert "pushing again is harmless" in str(refused.value)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "a:8082", "http://a:b", "http://a?b=c", "http://u:p@a"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InvalidInput, match="address"):
        post(Target(url=url), "/api/x", {}, 0, iter([]))
