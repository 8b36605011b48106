"""A real HTTP server outside of everything that is tested, which counts what it was asked, by idempotency key.

It runs in threads, so that a test can wait for a request, kill whoever sent it, and look at the counts. A request can
be held: it has arrived and is counted, and its answer waits until it is released. With an upstream it also stands in
front of an object store, so that a write to that can be held as well.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Counting", "counting"]

_PATIENCE = 30.0
_HELD_SECONDS = 120.0
"""Longer than anybody waits for a second request to be held beside a first one."""
_KEY = "Idempotency-Key"


class Counting:
    """What was asked, and what is held."""

    def __init__(self, upstream: int | None = None) -> None:
        self.url = ""
        self.upstream = upstream
        self._changed = threading.Condition()
        self.headers: list[dict[str, str]] = []
        self._calls: list[tuple[str, str]] = []
        self._held_word: tuple[str, str] | None = None
        self._held = 0

    def hold(self, word: str, method: str = "POST") -> None:
        """From now on a request whose path has this in it is not answered."""
        with self._changed:
            self._held_word = method, word

    def wait_held(self, count: int = 1, seconds: float = _PATIENCE) -> None:
        """Return when so many requests are held."""
        self._wait(lambda: self._held >= count, seconds)

    def wait_calls(self, count: int) -> None:
        """Return when so many calls were counted."""
        self._wait(lambda: len(self._calls) >= count)

    def release(self) -> None:
        """Answer what is held, and hold nothing more."""
        with self._changed:
            self._held_word = None
            self._changed.notify_all()

    @property
    def calls(self) -> Counter[str]:
        """How often each path was asked."""
        return Counter(path for path, _ in self._calls)

    @property
    def keys(self) -> Counter[str]:
        """How often each idempotency key was seen."""
        return Counter(key for _, key in self._calls)

    @property
    def made(self) -> list[tuple[str, str]]:
        """Path and idempotency key of every call, in order."""
        return list(self._calls)

    @property
    def total(self) -> int:
        return len(self._calls)

    def arrived(self, method: str, path: str, key: str | None) -> bool:
        """Count a request, and wait if it is to be held; False for one that was."""
        with self._changed:
            if key is not None:
                self._calls.append((path, key))
            self._changed.notify_all()
            if self._held_word is None or method != self._held_word[0] or self._held_word[1] not in path:
                return True
            self._held += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._held_word is None, _HELD_SECONDS)
            self._held -= 1
            return False

    def _wait(self, reached: Any, seconds: float = _PATIENCE) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, seconds), f"nothing came after {self._calls[-3:]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    counting: Counting

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self.headers.get(_KEY)
        if key is not None:
            self.counting.headers.append({name.lower(): value for name, value in self.headers.items()})
        goes_on = self.counting.arrived(self.command, self.path, key)
        if key is None and self.counting.upstream is not None:
            if goes_on:
                self._pass_on(self.counting.upstream, body)
            else:
                self.close_connection = True  # whoever wrote this is dead, and it never reached the store
            return
        self._answer(200, [("Content-Type", "application/json")], b'{"path": "%s"}' % self.path.encode())

    def _pass_on(self, port: int, body: bytes) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            said = upstream.getresponse()
            data = said.read()
            kept = [(name, value) for name, value in said.getheaders() if name.lower() in _PASSED]
            length = said.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self._answer(said.status, kept, data, length)
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: str | None = None) -> None:
        with contextlib.suppress(OSError):  # whoever asked may be dead
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it is called by
        """Nothing is printed."""

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve  # noqa: N815 - the names it is called by


_PASSED = frozenset({"etag", "content-type", "last-modified", "x-amz-version-id", "content-range"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed in mid-sentence is what this is for."""


@contextlib.contextmanager
def counting(upstream: int | None = None) -> Iterator[Counting]:
    """A server on a port of its own, until the block ends."""
    counted = Counting(upstream)
    handler = type("Handler", (_Handler,), {"counting": counted})
    server = _Server(("127.0.0.1", 0), handler)
    counted.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield counted
    finally:
        counted.release()
        server.shutdown()
        server.server_close()
        thread.join()
