"""A collector of OpenTelemetry that keeps what it is sent: spans by OTLP over HTTP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector", "Told", "collecting"]


class Told(NamedTuple):
    """A span as it arrived."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str


class Collector:
    """What has arrived so far."""

    def __init__(self) -> None:
        self.url = ""
        self._changed = threading.Condition()
        self._told: list[Told] = []

    def add(self, body: bytes) -> None:
        """Keep the spans of a request."""
        with self._changed:
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = next(one.value.string_value for one in part.resource.attributes if one.key == "service.name")
                self._told += [
                    Told(service, span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    for scope in part.scope_spans
                    for span in scope.spans
                ]
            self._changed.notify_all()

    def wait(self, reached: Callable[[list[Told]], bool], seconds: float = 60.0) -> list[Told]:
        """The spans, once they are what is waited for."""
        with self._changed:
            assert self._changed.wait_for(lambda: reached(self._told), seconds), self._told
            return list(self._told)


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a port of its own."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take spans."""
            collector.add(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it is called by
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
