"""What Prometheus reads: ours, bounded, and without secrets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.observe.metrics import INSTRUMENTS
from tests.unit.server.hall import HELLO, SECRET, Hall, open_hall, register

PYTHON = HELLO.replace("hello", "python").replace("{kind: noop}", "{kind: python, code: 'result = 1'}")


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("path", ["/metrics", "/api/metrics"])
async def test_a_reader_sees_every_instrument(hall: Hall, path: str) -> None:
    answer = await (await hall.holder("reader", tenant="default")).get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name in INSTRUMENTS:
        assert f"# HELP {name}" in answer.text or f"# HELP {name.removesuffix('_total')}" in answer.text


async def test_what_happened_is_counted_by_route_and_never_by_id(hall: Hall) -> None:
    client = await hall.holder("admin", tenant="default")
    await register(client)
    started = (await client.post("/api/execute", json={"path": "guide/hello"})).json()["execution_id"]
    for path in (f"/api/executions/{started}", "/made/up", f"/made/{SECRET}", "/api/executions/1"):
        await client.get(path)
    await client.post("/api/credentials", json={"name": "crm", "type": "bearer", "data": {"token": SECRET}})
    text = (await client.get("/metrics")).text
    assert 'noetl_http_requests_total{method="GET",route="/api/executions/{execution_id}",status="200"} 1.0' in text
    assert 'noetl_http_requests_total{method="GET",route="unmatched",status="404"} 2.0' in text
    assert "noetl_executions_started_total 1.0" in text
    assert 'noetl_executions_ended_total{status="COMPLETED"} 1.0' in text
    assert re.search(r"noetl_append_seconds_count [1-9]", text)
    assert started not in text
    assert SECRET not in text
    assert not re.search(r'="[^"]*\d{10,}', text), "no label holds an id"


async def test_tiers_of_payloads_show_how_full_they_are(hall: Hall) -> None:
    text = (await (await hall.holder("reader", tenant="default")).get("/metrics")).text
    assert 'noetl_payload_tier_bytes{tier="memory"} ' in text
    assert 'noetl_payload_tier_budget_bytes{tier="memory"} 6.7108864e+07' in text


async def test_those_who_are_refused_are_counted_by_why(hall: Hall) -> None:
    await (await hall.client()).get("/api/executions")
    await (await hall.client({"Authorization": "Bearer nonsense"})).get("/api/executions")
    text = (await (await hall.holder("reader", tenant="default")).get("/metrics")).text
    assert 'noetl_auth_refused_total{reason="missing"} 1.0' in text
    assert 'noetl_auth_refused_total{reason="unknown"} 1.0' in text


async def test_commands_show_how_long_they_waited_and_ran(hall: Hall) -> None:
    client = await hall.holder("admin", tenant="default")
    await client.post("/api/catalog/register", json={"content": PYTHON})
    started = (await client.post("/api/execute", json={"path": "guide/python"})).json()["execution_id"]
    await client.get(f"/api/executions/{started}/stream")
    text = (await client.get("/metrics")).text
    assert 'noetl_command_wait_seconds_count{kind="python"} 1.0' in text
    assert 'noetl_command_run_seconds_count{kind="python"} 1.0' in text
    assert re.search(r'noetl_build_info{version="[^"]+"} 1.0', text)


async def test_the_backlog_of_frames_is_a_number_also_when_there_is_none(hall: Hall) -> None:
    text = (await (await hall.holder("reader", tenant="default")).get("/metrics")).text
    assert 'noetl_frame_backlog_total{stage_kind="all",status="all"} 0.0' in text
    assert "noetl_outbox_oldest_seconds 0.0" in text, "nobody publishes here, and nothing is late"


async def test_they_are_about_all_tenants_and_so_for_none_but_the_servers_own(hall: Hall) -> None:
    for path in ("/metrics", "/api/metrics", "/api/worker/pools"):
        refused = await (await hall.holder("admin", tenant="globex", name=path)).get(path)
        assert refused.status_code == 403
        assert "is about the whole installation; token:" in refused.json()["detail"]
        assert refused.json()["hint"].endswith("noetl token create --tenant default")
        assert (await (await hall.holder("admin", tenant="default", name=path)).get(path)).status_code == 200
