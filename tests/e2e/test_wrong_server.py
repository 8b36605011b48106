"""Every client of a server, and a server that is none, is of another release, does not know the token, or is away."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import noetl
from tests.e2e.cli import PROJECT_ROOT, Home
from tests.services.emulator import free_ports

HELLO = PROJECT_ROOT / "examples" / "01_hello.yaml"


def problem(kind: str, status: int, detail: str, hint: str) -> bytes:
    return json.dumps(
        {"type": f"urn:noetl:problem:{kind}", "title": kind, "status": status, "detail": detail, "hint": hint}
    ).encode()


UNKNOWN = problem("Unauthenticated", 401, "the token is not one that this server knows", "noetl token create makes one")
OTHER = problem(
    "Conflict", 409, "this server is noetl 99.1.0 and does not understand the worker, which is 0", "install the same"
)


class Server:
    """What it answers to health, and to all else."""

    def __init__(self, health: bytes, status: int, rest: bytes) -> None:
        self.health, self.status, self.rest = health, status, rest

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        said = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                healthy = self.path.endswith("/health")
                body = said.health if healthy else said.rest
                self.send_response(200 if healthy else said.status)
                self.send_header("Content-Type", "application/json" if body[:1] == b"{" else "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815 - named by the library

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


OURS = json.dumps({"status": "ok", "version": noetl.__version__}).encode()
NEWER = Server(b'{"status": "ok", "version": "99.1.0"}', 409, OTHER)
UNKNOWING = Server(OURS, 401, UNKNOWN)
NONE = Server(b"<html>a page</html>", 404, b"<html>not here</html>")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A user with an execution to push."""
    home = Home(tmp_path_factory.mktemp("user") / "home")
    home.run("run", HELLO, "--offline")
    return home


def commands(home: Home, url: str) -> dict[str, list[str | Path]]:
    home.run("context", "add", "there", "--url", url, "--replace")
    (one,) = home.json("list", "--context", "local")["executions"]
    return {
        "list": ["list", "--context", "there"],
        "run": ["run", HELLO, "-r", "server", "--context", "there"],
        "register": ["register", HELLO, "--context", "there"],
        "push": ["push", one["execution_id"], "--to", url],
        "worker": ["worker", "--server", url, "--nats", "nats://127.0.0.1:1"],
    }


@pytest.mark.parametrize(
    ("server", "codes", "words"),
    [
        (UNKNOWING, {2}, "the token is not one that this server knows"),
        (NEWER, {2, 3}, "99.1.0"),
        (NONE, {2, 3}, "http://127.0.0.1:"),
    ],
    ids=["unknown token", "another release", "no server"],
)
def test_every_command_says_what_is_wrong(ran: Home, server: Server, codes: set[int], words: str) -> None:
    with server.listening() as url:
        for name, words_of in commands(ran, url).items():
            refused = ran.run(*words_of)
            assert refused.code in codes, (name, refused.code, refused.stderr)
            assert words in refused.stderr, (name, refused.stderr)
            assert "Traceback" not in refused.stderr


def test_nobody_there_is_a_dependency_that_is_away(ran: Home) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    for name, words in commands(ran, url).items():
        if name != "worker":  # which waits for its server a while
            refused = ran.run(*words)
            assert (refused.code, url in refused.stderr) == (3, True), (name, refused)


def test_from_python_it_is_an_error_of_ours() -> None:
    for server, kind, words in (
        (UNKNOWING, noetl.NoetlError, "not one that this server knows"),
        (NEWER, noetl.InvalidInput, "they do not understand each other"),
        (NONE, noetl.InvalidInput, "is not a NoETL server"),
    ):
        with server.listening() as url, pytest.raises(kind, match=words):
            noetl.connect(url, "wrong").executions()
