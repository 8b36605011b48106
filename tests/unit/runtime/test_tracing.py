"""An execution and all that it does are in one trace: its commands, tasks, stages, frames and those it calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from noetl.kernel.event import Json
from noetl.kernel.streams import execution_stream
from noetl.observe import traces
from noetl.observe.otel import OtelTracer
from noetl.ports.ledger import Stream
from noetl.runtime.requeue import command_of
from tests.services.counter import counting
from tests.unit.runtime.plant import Plant, opened
from tests.unit.runtime.workshop import book, step

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
SEES = {
    "kind": "python",
    "code": "import os\nresult = {'env': os.environ.get('TRACEPARENT'), 'trace': context['trace']}",
}


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracer = OtelTracer(SimpleSpanProcessor(exporter), "tests")
    traces.install(tracer)
    yield exporter
    traces.uninstall()
    tracer.close()


def by_name(spans: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def parents(spans: Sequence[ReadableSpan]) -> set[int]:
    return {span.parent.span_id for span in spans if span.parent is not None}


async def trace_in(plant: Plant, execution_id: int) -> Any:
    return (await plant.events(execution_id))[0].meta.get("trace")


async def test_without_a_trace_nothing_is_recorded(plant: Plant) -> None:
    ended = await plant.run(book(step("a", tool={"kind": "python", "code": "result = {'seen': 'trace' in context}"})))
    assert ended.result == {"seen": False}
    assert not any("trace" in event.meta for event in await plant.events(ended.execution_id))


async def test_where_nobody_records_spans_the_callers_place_is_handed_on(plant: Plant) -> None:
    with counting() as outside:
        call = {"kind": "http", "method": "POST", "url": outside.url}
        ended = await plant.run(book(step("a", "b", tool=SEES), step("b", tool=call)), trace=CALLER)
        assert [headers.get("traceparent") for headers in outside.headers] == [CALLER["traceparent"]]
        assert [headers.get("tracestate") for headers in outside.headers] == [CALLER["tracestate"]]
    events = await plant.events(ended.execution_id)
    assert events[0].meta["trace"] == CALLER
    issued = [event for event in events if event.event_type == "command.issued"]
    assert [event.meta["trace"] for event in issued] == [CALLER, CALLER]
    seen = next(event for event in events if event.event_type == "call.done").payload["result"]["context"]
    assert seen == {"env": CALLER["traceparent"], "trace": CALLER}


async def test_a_run_is_a_tree_of_spans_below_its_caller(plant: Plant, spans: InMemorySpanExporter) -> None:
    with counting() as outside:
        call = {"kind": "http", "method": "POST", "url": outside.url}
        ended = await plant.run(book(step("a", "b", tool=SEES), step("b", tool=call)), trace=CALLER)
        (headers,) = outside.headers
    told = by_name(spans)
    assert {span.context.trace_id for group in told.values() for span in group} == {int(TRACE, 16)}
    (execution,) = told["noetl.execution"]
    own = (await trace_in(plant, ended.execution_id))["span_id"]
    assert execution.context.span_id == int(own, 16)
    assert parents([execution]) == {int(SPAN, 16)}
    below = {int(own, 16)}
    assert parents(told["noetl.command"]) == parents(told["noetl.decide"]) == parents(told["noetl.append"]) == below
    assert len(told["noetl.command"]) == len(told["noetl.task"]) == 2
    commands = {span.context.span_id for span in told["noetl.command"]}
    assert parents(told["noetl.task"]) == commands
    task = next(span for span in told["noetl.task"] if (span.attributes or {})["noetl.kind"] == "http")
    assert headers["traceparent"] == f"00-{TRACE}-{task.context.span_id:016x}-01"
    assert headers["tracestate"] == "vendor=1"
    assert (execution.attributes or {})["noetl.status"] == "COMPLETED"


async def test_a_run_that_nobody_has_put_into_a_trace_begins_one(plant: Plant, spans: InMemorySpanExporter) -> None:
    ended = await plant.run(book(step("a", tool={"kind": "python", "code": "raise ValueError('no')"})))
    said = await trace_in(plant, ended.execution_id)
    (execution,) = by_name(spans)["noetl.execution"]
    assert execution.parent is None
    assert said["traceparent"] == f"00-{execution.context.trace_id:032x}-{execution.context.span_id:016x}-01"
    assert execution.status.description == "FAILED"
    (task,) = by_name(spans)["noetl.task"]
    assert task.status.description == "PY_ValueError"


async def test_what_is_called_is_below_its_caller(plant: Plant, spans: InMemorySpanExporter) -> None:
    await plant.register(book(step("inner", tool=SEES), path="child"))
    calls: Json = step("call", tool={"kind": "playbook", "path": "child"})
    ended = await plant.run(book(calls), trace=CALLER)
    child, parent = by_name(spans)["noetl.execution"]
    assert child.context.trace_id == parent.context.trace_id == int(TRACE, 16)
    assert parents([child]) == {parent.context.span_id}
    assert ended.result["trace"]["traceparent"].startswith(f"00-{TRACE}-")


async def test_frames_of_a_stage_are_spans_and_their_rows_are_in_the_trace(
    plant: Plant, spans: InMemorySpanExporter
) -> None:
    with counting() as outside:
        loop = {
            "in": [1, 2, 3],
            "iterator": "n",
            "spec": {"mode": "fanout", "engine": "worker", "frame": {"max_rows": 2}},
        }
        call = {"kind": "http", "method": "POST", "url": outside.url}
        await plant.run(book(step("fan", loop=loop, tool=call)), trace=CALLER)
        (stage,) = by_name(spans)["noetl.stage"]
        place = f"00-{TRACE}-{stage.context.span_id:016x}-01"
        assert [headers["traceparent"] for headers in outside.headers] == [place] * 3
    frames = by_name(spans)["noetl.frame"]
    assert len(frames) == 2
    assert parents(frames) == {stage.context.span_id}
    assert "noetl.task" not in by_name(spans), "rows are many"


async def test_reading_the_log_again_tells_nothing(plant: Plant, spans: InMemorySpanExporter) -> None:
    ended = await plant.run(book(step("a", tool=SEES)), trace=CALLER)
    await plant.embedded.projector.catch_up()
    spans.clear()
    root = Stream("default", execution_stream(ended.execution_id))
    await plant.embedded.replayer.replay(root)
    await plant.embedded.replayer.snapshot(root)
    async with opened(plant.place) as again:
        await again.run(book(step("b", tool={"kind": "noop"})), key="k", trace=CALLER)
        spans.clear()
        await again.run(book(step("b", tool={"kind": "noop"})), key="k", trace=CALLER)
    assert not spans.get_finished_spans()


async def test_a_command_on_its_way_carries_its_place(plant: Plant) -> None:
    ended = await plant.run(book(step("a", tool=SEES)), trace=CALLER)
    events = await plant.events(ended.execution_id)
    command = command_of(next(event for event in events if event.event_type == "command.issued"))
    assert command is not None
    assert command.carrier == CALLER
