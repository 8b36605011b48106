"""Spans as OpenTelemetry has them, sent to a collector by OTLP over HTTP. Needs the packages of `noetl[otel]`.

They are sent from a thread of their own, in batches: a collector that is slow or away costs spans, never a step.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from noetl.errors import InvalidSetting
from noetl.observe import traces
from noetl.observe.traces import TraceContext, Value

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span

__all__ = ["OtelTracer", "recorded"]

_PATH = "/v1/traces"
_PATIENCE = 2.0
"""How long a batch is offered to a collector that does not take it, also when the process is about to end."""


@contextlib.contextmanager
def recorded(endpoint: str | None, service: str) -> Iterator[None]:
    """Send the spans of this process to a collector until the end of the block; nowhere without an endpoint.

    Where they are sent somewhere already, that stays as it is.
    Raises InvalidSetting if the packages are not here.
    """
    if endpoint is None or traces.is_installed():
        yield
        return
    tracer = OtelTracer(_exporting(endpoint), service)
    traces.install(tracer)
    try:
        yield
    finally:
        traces.uninstall()
        tracer.close()


class OtelTracer:
    """Makes spans with the SDK of OpenTelemetry. Who a span's parent is, is said every time and never guessed."""

    def __init__(self, processor: SpanProcessor, service: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        chosen = self._chosen = threading.local()

        class Ids(RandomIdGenerator):
            """Random ones, unless a span was given its name before it was recorded."""

            def generate_span_id(self) -> int:
                own: TraceContext | None = getattr(chosen, "own", None)
                return super().generate_span_id() if own is None else int(own.span_id, 16)

            def generate_trace_id(self) -> int:
                own: TraceContext | None = getattr(chosen, "own", None)
                return super().generate_trace_id() if own is None else int(own.trace_id, 16)

        resource = Resource.create({"service.name": service})
        self._provider = TracerProvider(resource=resource, id_generator=Ids(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("noetl")

    def begin(
        self,
        name: str,
        parent: TraceContext | None,
        attributes: Mapping[str, Value],
        *,
        own: TraceContext | None = None,
        at: int | None = None,
    ) -> OtelSpan:
        """Begin a span below a place, or the first of its trace."""
        self._chosen.own = own
        try:
            span = self._tracer.start_span(
                name, _context(parent), attributes=attributes, start_time=None if at is None else at * 1000
            )
        finally:
            self._chosen.own = None
        return OtelSpan(span)

    def close(self) -> None:
        """Send what is left, but do not wait for long."""
        self._provider.force_flush(int(_PATIENCE * 1000))
        self._provider.shutdown()


class OtelSpan:
    """A span that has begun."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def context(self) -> TraceContext:
        """What begins inside of it names this as its parent."""
        found = self._span.get_span_context()
        return TraceContext(
            f"{found.trace_id:032x}", f"{found.span_id:016x}", f"{int(found.trace_flags):02x}",
            found.trace_state.to_header(),
        )  # fmt: skip

    def end(self, *, error: str | None = None, at: int | None = None) -> None:
        """It is over."""
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(None if at is None else at * 1000)


def _context(parent: TraceContext | None) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

    if parent is None:
        return Context()
    state = TraceState.from_header([parent.state]) if parent.state else TraceState()
    place = SpanContext(
        int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True,
        trace_flags=TraceFlags(int(parent.flags, 16)), trace_state=state,
    )  # fmt: skip
    return set_span_in_context(NonRecordingSpan(place), Context())


def _exporting(endpoint: str) -> SpanProcessor:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"observe.otlp is set, but {error.name} is not installed", hint="pip install 'noetl[otel]'"
        ) from None
    address = endpoint.rstrip("/")
    return BatchSpanProcessor(
        OTLPSpanExporter(address if address.endswith(_PATH) else address + _PATH, timeout=_PATIENCE)
    )
