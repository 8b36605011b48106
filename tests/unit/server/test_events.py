"""Events over HTTP: pages, cursors, filters, streams."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream, telemetry_stream
from noetl.ports.ledger import Stream
from noetl.runtime.service.pages import EventLog
from tests.unit.runtime.workshop import Workshop
from tests.unit.server.api import Api, book, messages, step

COLUMNS = {
    "execution_id", "catalog_id", "event_id", "parent_event_id", "parent_execution_id", "prev_event_id", "event_type",
    "node_id", "node_name", "node_type", "status", "duration", "context", "result", "meta", "error", "worker_id",
    "created_at", "event_time", "stage_id", "frame_id", "attempt",
}  # fmt: skip


class TestPages:
    async def test_the_columns_are_those_of_the_language_reference(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        events = (await api.get(f"/executions/{execution_id}/events"))["events"]
        assert all(set(event) == COLUMNS for event in events)
        assert events[0]["prev_event_id"] is None
        assert [event["prev_event_id"] for event in events[1:]] == [event["event_id"] for event in events[:-1]]
        done = next(event for event in events if event["event_type"] == "call.done")
        assert done["result"] == {"status": "ok", "context": {"step": "a"}}
        assert (events[-1]["node_id"], events[-1]["node_name"]) == ("playbook", "playbook")

    async def test_pages_cover_the_log_without_gap_or_repetition(self, api: Api) -> None:
        execution_id = await api.run(book(step("a", "b"), step("b")))
        whole = (await api.get(f"/executions/{execution_id}/events"))["events"]
        seen: list[Any] = []
        page = 1
        while True:
            found = await api.get(f"/executions/{execution_id}/events", page=page, page_size=4)
            seen += found["events"]
            pagination = found["pagination"]
            assert pagination["total_events"] == len(whole)
            assert pagination["has_prev"] == (page > 1)
            page += 1
            if not pagination["has_next"]:
                break
        assert seen == whole
        assert pagination["total_pages"] == page - 1
        by_cursor: list[Any] = []
        cursor: str | None = "0"
        while cursor is not None:
            found = await api.get(f"/executions/{execution_id}/events", cursor=cursor, page_size=4)
            by_cursor += found["events"]
            cursor = found["next_cursor"]
        assert by_cursor == whole

    async def test_beyond_the_end_there_is_nothing(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        found = await api.get(f"/executions/{execution_id}/events", page=99)
        assert found["events"] == []
        assert found["pagination"]["has_next"] is False

    @pytest.mark.parametrize("spelling", ["playbook.initialized", "playbook_initialized", "playbook_started"])
    async def test_older_spellings_are_understood(self, api: Api, spelling: str) -> None:
        execution_id = await api.run(book(step("a")))
        found = await api.get(f"/executions/{execution_id}/events", event_type=spelling)
        assert [event["event_type"] for event in found["events"]] == ["playbook.initialized"]
        assert found["pagination"]["total_events"] == 1

    async def test_a_filter_pages_over_what_it_lets_through(self, api: Api) -> None:
        names = [f"s{n}" for n in range(5)]
        chain = [step(name, *names[n + 1 : n + 2]) for n, name in enumerate(names)]
        execution_id = await api.run(book(*chain))
        asked = {"event_type": "step.exit", "page_size": 2}
        pages = [await api.get(f"/executions/{execution_id}/events", page=page, **asked) for page in (1, 2, 3)]
        assert [event["node_name"] for page in pages for event in page["events"]] == names
        assert [page["pagination"]["has_next"] for page in pages] == [True, True, False]

    async def test_pages_stay_the_same_while_the_log_grows(self, api: Api) -> None:
        open_, reached = asyncio.Event(), asyncio.Event()

        async def body(_: Any) -> Any:
            reached.set()
            await open_.wait()
            return {}

        api.body = body
        execution_id = await api.start(book(step("a")))
        await reached.wait()
        before = await api.get(f"/executions/{execution_id}/events", page_size=2)
        open_.set()
        await api.ended(execution_id)
        after = await api.get(f"/executions/{execution_id}/events", page_size=2)
        assert before["events"] == after["events"]
        assert after["pagination"]["total_events"] > before["pagination"]["total_events"]


class TestSeveralStreams:
    """An execution with events beside its own stream has no versions to count by."""

    async def test_marks_find_any_page(self, either: Workshop) -> None:
        finished = await either.run(book(step("a")))
        execution_id = finished.execution_id
        root = Stream("default", execution_stream(execution_id))
        beside = Stream("default", telemetry_stream(execution_id))
        draft = (await either.events(execution_id))[0]
        for _ in range(5):
            await either.ledger.append([Batch(stream=beside, drafts=[_heartbeat(draft) for _ in range(500)])])
        log = EventLog(either.embedded.ledger)
        whole: list[int] = []
        after = 0
        while page := await either.ledger.read_root(root, after_position=after, limit=1000):
            whole += [item.event.event_id for item in page]
            after = page[-1].position
        assert len(whole) > 2500
        for skip, limit in ((0, 7), (999, 2), (1000, 5), (1001, 1000), (2400, 200), (len(whole) - 1, 5), (9999, 5)):
            found = await log.page(root, skip=skip, limit=limit)
            assert [item.event.event_id for item in found.events] == whole[skip : skip + limit]
            assert (found.total, found.more) == (len(whole), skip + limit < len(whole))
        beats = await log.page(root, skip=1500, limit=10, event_type="command.heartbeat")
        assert (len(beats.events), beats.total) == (10, 2500)
        behind = await log.after(root, beats.events[-1].position, 5)
        assert (behind.total, len(behind.events), behind.more) == (len(whole), 5, True)


def _heartbeat(event: Any) -> Any:
    from noetl.kernel.event import Draft

    return Draft(
        event_type="command.heartbeat", tenant_id="default", organization_id="default", project_id="default",
        principal="system", producer=event.producer, execution_id=event.execution_id, command_id=1,
        aggregate_type="command", aggregate_id="1",
    )  # fmt: skip


class TestStream:
    async def test_it_shows_every_event_and_ends_with_the_terminal_one(self, api: Api) -> None:
        execution_id = await api.start(book(step("a")))
        streamed = await api.stream(f"/executions/{execution_id}/stream")
        assert [version for version, _ in streamed] == list(range(1, len(streamed) + 1))
        assert streamed[-1][1]["event_type"] == "playbook.completed"
        stored = (await api.get(f"/executions/{execution_id}/events"))["events"]
        assert [event["event_id"] for _, event in streamed] == [event["event_id"] for event in stored]
        assert all(isinstance(event["execution_id"], str) for _, event in streamed)

    async def test_who_comes_back_misses_nothing(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        path = f"/executions/{execution_id}/stream"
        whole = await api.stream(path)
        assert await api.stream(path, **{"Last-Event-ID": "4"}) == whole[4:]
        assert await api.stream(f"{path}?after=4") == whole[4:]
        seen = await api.client.get(f"/api{path}", headers={"Last-Event-ID": str(len(whole))})
        assert seen.status_code == 204
        bad = await api.client.get(f"/api{path}", headers={"Last-Event-ID": "x"})
        assert bad.status_code == 422

    async def test_events_come_as_they_are_committed(self, api: Api) -> None:
        open_ = asyncio.Event()

        async def body(_: Any) -> Any:
            await open_.wait()
            return {}

        api.body = body
        execution_id = await api.start(book(step("a")))
        service = await api.services.of("default", "default")
        events = await service.reading.follow(int(execution_id), 0)
        first = [(await anext(events)).event_type for _ in range(3)]
        assert first == ["playbook.initialized", "workflow.initialized", "command.issued"]
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not waiting.done()
        open_.set()
        assert (await waiting).event_type == "command.claimed"

    async def test_what_another_process_writes_is_seen(self, api: Api, tmp_path: Any) -> None:
        from noetl.runtime.embedded.runner import driver_of
        from noetl.runtime.origin import origin_of

        hold = asyncio.Event()
        api.body = lambda _: hold.wait()
        execution_id = await api.start(book(step("a")))
        streaming = asyncio.create_task(api.ended(execution_id))
        other = driver_of(api.embedded, origin_of(api.services.settings))
        assert await other.cancel(int(execution_id), "from elsewhere")
        assert (await streaming)[-1]["event_type"] == "playbook.cancelled"
        assert (await api.get(f"/executions/{execution_id}/status"))["cancelled"] is True
        service = await api.services.of("default", "default")
        await service.tidy()
        hold.set()

    async def test_changes_of_the_list(self, api: Api) -> None:
        service = await api.services.of("default", "default")
        before = await api.embedded.ledger.position()
        execution_id = await api.run(book(step("a"), path="x/y"))
        changes = service.reading.changes(before)
        begun, ended = await anext(changes), await anext(changes)
        assert (begun.execution_id, begun.path, begun.status) == (execution_id, "x/y", "RUNNING")
        assert (ended.execution_id, ended.status) == (execution_id, "COMPLETED")
        assert ended.position > begun.position

    async def test_streams_end_when_the_server_goes_down(self, api: Api) -> None:
        listening = asyncio.create_task(api.client.get("/api/stream"))
        await asyncio.sleep(0)
        api.app.state.closing.set()
        response = await listening
        assert response.status_code == 200

    async def test_a_beat_comes_first(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        response: httpx.Response = await api.client.get(f"/api/executions/{execution_id}/stream")
        assert response.text.startswith(": ")
        assert await anext(messages(response)) == (1, (await api.ended(execution_id))[0])
