"""Who is well, and what the others said last."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from noetl.deploy.local.health import ill, last_lines
from noetl.deploy.local.ports import free_ports


@contextmanager
def answering(status: int, body: bytes = b"{}") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/health"
        server.shutdown()
        thread.join()


def test_who_answers_is_well() -> None:
    with answering(200) as address:
        assert ill(address) is None


def test_who_says_why_it_is_not_well_is_quoted() -> None:
    with answering(503, b'{"ok": false, "detail": "the database is away"}') as address:
        assert ill(address) == "the database is away"
    with answering(503, b"[]") as address:
        assert ill(address) == "it answers 503"


def test_who_does_not_answer_is_not_well() -> None:
    port = free_ports(1)[0]
    assert ill(f"http://127.0.0.1:{port}/health") == "it does not answer"
    assert ill(str(port)) == "it lets nobody in yet"


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(20)) + "\n")
    assert last_lines(log, 3) == ["line 18", "line 19"]
    assert last_lines(tmp_path / "no.log") == []
