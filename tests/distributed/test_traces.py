"""One trace through everything: caller, server, queue, worker, the systems it calls, and a child execution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.distributed.stack import Stack, stack
from tests.services.collector import Collector, collecting
from tests.services.counter import counting
from tests.services.nats import NatsServer
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
HEAD = {"apiVersion": "noetl.io/v2", "kind": "Playbook"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
def whole(tmp_path: Path, postgres: Database, collector: Collector) -> Iterator[Stack]:
    (tmp_path / "stack").mkdir()
    nats = NatsServer(tmp_path / "nats").start()
    try:
        with stack(tmp_path / "stack", postgres.dsn, nats.url, NOETL_OBSERVE__OTLP=collector.url) as found:
            yield found
    finally:
        nats.kill()


def document(path: str, *steps: Any) -> str:
    return yaml.safe_dump({**HEAD, "metadata": {"name": path, "path": path}, "workflow": list(steps)})


def test_one_trace_through_every_process(whole: Stack, collector: Collector) -> None:
    with counting() as outside:
        call = {"kind": "http", "method": "POST", "url": outside.url}
        whole.server.register(document("inner", {"step": "call", "tool": call}))
        whole.server.register(document("outer", {"step": "inner", "tool": {"kind": "playbook", "path": "inner"}}))
        worker = whole.worker("w1", env={"NOETL_OBSERVE__OTLP": collector.url})
        answer = whole.server.client.post("/api/execute", json={"path": "outer"}, headers=CALLER).json()
        assert whole.server.ended(answer["execution_id"]) == "playbook.completed"
        (headers,) = outside.headers
    worker.terminate()
    assert worker.wait(60) == 0
    told = collector.wait(lambda spans: sum(span.name == "noetl.execution" for span in spans) == 2)
    assert {span.trace_id for span in told} == {TRACE}
    assert {(span.service, span.name) for span in told} >= {
        ("noetl-server", "noetl.execution"), ("noetl-server", "noetl.decide"), ("noetl-server", "noetl.append"),
        ("noetl-worker", "noetl.command"), ("noetl-worker", "noetl.task"),
    }  # fmt: skip
    by_id = {span.span_id: span for span in told}
    task = by_id[headers["traceparent"].split("-")[2]]
    above, at = [], task
    while at.parent_id in by_id:
        at = by_id[at.parent_id]
        above.append((at.service, at.name))
    assert above == [
        ("noetl-worker", "noetl.command"), ("noetl-server", "noetl.execution"), ("noetl-server", "noetl.execution"),
    ]  # fmt: skip
    assert at.parent_id == SPAN, "the caller's"
    assert headers["tracestate"] == CALLER["tracestate"]
    assert whole.verified(answer["execution_id"])
    assert len(collector.wait(bool)) == len(told), "verifying and replaying tell nothing"
