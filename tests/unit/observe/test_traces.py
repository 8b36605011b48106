"""A trace comes in, goes on and goes out, whether or not anybody records it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from noetl.errors import InvalidSetting
from noetl.observe import otel, traces
from noetl.observe.otel import OtelTracer
from noetl.observe.traces import TraceContext

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
PLACE = TraceContext(TRACE, SPAN)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracer = OtelTracer(SimpleSpanProcessor(exporter), "tests")
    traces.install(tracer)
    yield exporter
    traces.uninstall()
    tracer.close()


def test_what_is_read_is_carried_on_unchanged() -> None:
    carrier = {"traceparent": PARENT, "tracestate": "vendor=1,other=two"}
    place = traces.read(carrier)
    assert place == TraceContext(TRACE, SPAN, "01", "vendor=1,other=two")
    assert place.carried() == carrier


@pytest.mark.parametrize(
    "text",
    ["", "00", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
     f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more", PARENT + "\n", "\0" * 55],
)  # fmt: skip
def test_what_is_not_well_formed_is_no_place(text: str) -> None:
    assert traces.read({"traceparent": text}) is None


def test_a_later_version_with_more_fields_is_understood() -> None:
    assert traces.read({"traceparent": f"01-{TRACE}-{SPAN}-01-later"}) == PLACE


@pytest.mark.parametrize("state", ["x" * 513, "a=\n", "a=é"])
def test_a_state_that_cannot_be_handed_on_is_dropped(state: str) -> None:
    assert traces.read({"traceparent": PARENT, "tracestate": state}) == PLACE


def test_what_is_in_no_trace_gets_no_span(spans: InMemorySpanExporter) -> None:
    with traces.within(None, "noetl.task") as span:
        span.fail("nobody hears this")
        assert traces.current() is None
    assert not spans.get_finished_spans()


def test_without_a_recorder_the_place_is_handed_on_as_it_came() -> None:
    assert not traces.is_installed()
    assert traces.begin() is None
    with traces.within(PLACE, "noetl.command"), traces.within(traces.current(), "noetl.task"):
        assert traces.current() == PLACE
    assert traces.current() is None


def test_spans_nest_and_keep_the_trace_and_its_state(spans: InMemorySpanExporter) -> None:
    with (
        traces.within(PLACE._replace(state="vendor=1"), "noetl.command", {"noetl.step": "a"}),
        traces.within(traces.current(), "noetl.task") as task,
    ):
        inner = traces.current()
        task.fail("HTTP_500")
    assert inner is not None
    told = {span.name: span for span in spans.get_finished_spans()}
    command, task_span = told["noetl.command"], told["noetl.task"]
    assert {span.context.trace_id for span in told.values()} == {int(TRACE, 16)}
    assert command.parent is not None
    assert command.parent.span_id == int(SPAN, 16)
    assert task_span.parent is not None
    assert task_span.parent.span_id == command.context.span_id
    assert inner.carried() == {
        "traceparent": f"00-{TRACE}-{task_span.context.span_id:016x}-01",
        "tracestate": "vendor=1",
    }
    assert command.attributes == {"noetl.step": "a"}
    assert (task_span.status.status_code, task_span.status.description) == (StatusCode.ERROR, "HTTP_500")


def test_what_is_raised_fails_its_span_and_goes_on(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="secret"), traces.within(PLACE, "noetl.append"):
        raise ValueError("secret")
    (span,) = spans.get_finished_spans()
    assert span.status.description == "ValueError", "what it says may hold anything"


def test_a_caller_that_does_not_want_to_be_recorded_is_not(spans: InMemorySpanExporter) -> None:
    with traces.within(PLACE._replace(flags="00"), "noetl.command"):
        found = traces.current()
    assert found is not None
    assert (found.trace_id, found.flags) == (TRACE, "00")
    assert not spans.get_finished_spans()


def test_a_span_that_is_over_has_the_name_and_the_times_it_was_given(spans: InMemorySpanExporter) -> None:
    own = traces.begin()
    assert own is not None
    traces.past("noetl.execution", None, 1_000_000, 3_000_000, {"noetl.path": "x"}, own=own, error="FAILED")
    traces.past("noetl.frame", own, 5, 4, {})
    execution, frame = spans.get_finished_spans()
    assert execution.context.trace_id == int(own.trace_id, 16)
    assert execution.context.span_id == int(own.span_id, 16)
    assert execution.parent is None
    assert (execution.start_time, execution.end_time) == (1_000_000_000, 3_000_000_000)
    assert frame.parent is not None
    assert frame.parent.span_id == execution.context.span_id
    assert frame.start_time == frame.end_time == 5000


def test_without_an_endpoint_nothing_is_imported_and_nothing_recorded() -> None:
    code = (
        "import sys, noetl.api.local\nfrom noetl.observe.otel import recorded\n"
        "with recorded(None, 'x'):\n    from noetl.observe import traces\n    assert not traces.is_installed()\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_an_endpoint_without_the_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidSetting, match=r"observe\.otlp is set, but opentelemetry") as refused:
        otel.recorded("http://127.0.0.1:1", "tests").__enter__()
    assert refused.value.hint == "pip install 'noetl[otel]'"
    assert not traces.is_installed()
