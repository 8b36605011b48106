"""Starting, listing, cancelling and finalising executions over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.runtime.workshop import Failed
from tests.unit.server.api import Api, book, step

UNKNOWN = "318485246779594112"


class Gate:
    """A task that says it was reached, and waits until it is let through."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, _: Any) -> dict[str, Any]:
        self.reached.set()
        await self.open.wait()
        return {"passed": True}


@pytest.fixture
def gate(api: Api) -> Gate:
    made = Gate()
    api.body = made
    return made


class TestExecute:
    async def test_an_accepted_execution_is_in_the_log(self, api: Api) -> None:
        await api.register(book(step("a")))
        said = await api.post("/execute", {"path": "t", "payload": {"n": 1}})
        assert said["status"] == "RUNNING"
        assert said["commands_generated"] == 1
        assert said["execution_id"].isdecimal()
        events = (await api.get(f"/executions/{said['execution_id']}/events"))["events"]
        assert events[0]["event_type"] == "playbook.initialized"
        assert events[0]["context"]["workload"] == {"n": 1}
        assert events[0]["context"]["document"]["version"] == 1

    async def test_it_may_be_named_by_catalog_id_and_version_and_by_an_older_word(self, api: Api) -> None:
        await api.register(book(step("a")), book(step("b")))
        entry = await api.post("/catalog/resource", {"path": "t", "version": 1})
        first = await api.post("/execute", {"catalog_id": entry["catalog_id"], "workload": {"n": 2}})
        second = await api.post("/execute", {"catalog_id": int(entry["catalog_id"])})
        third = await api.post("/execute", {"path": "t", "version": 2})
        latest = await api.post("/execute", {"path": "t", "version": "latest"})
        for said, name in ((first, "a"), (second, "a"), (third, "b"), (latest, "b")):
            await api.ended(said["execution_id"])
            assert (await api.get(f"/executions/{said['execution_id']}/status"))["completed_steps"] == [name]
        assert (await api.get(f"/executions/{first['execution_id']}"))["catalog_id"] == entry["catalog_id"]

    async def test_the_caller_stands_in_every_event(self, api: Api) -> None:
        from noetl.runtime.callers import local_caller

        execution_id = await api.start(book(step("a")))
        events = await api.ended(execution_id)
        assert {event["principal"] for event in events} == {local_caller(api.services.settings).principal}

    async def test_the_same_key_gives_the_same_execution(self, api: Api) -> None:
        await api.register(book(step("a")))
        first = await api.client.post("/api/execute", json={"path": "t"}, headers={"Idempotency-Key": "k"})
        again = await api.client.post("/api/execute", json={"path": "t", "idempotency_key": "k"})
        assert first.json()["execution_id"] == again.json()["execution_id"]
        assert len((await api.get("/executions"))["executions"]) == 1

    async def test_many_at_once_are_all_accepted(self, api: Api) -> None:
        await api.register(book(step("a")))
        said = await asyncio.gather(*(api.post("/execute", {"path": "t"}) for _ in range(40)))
        assert len({one["execution_id"] for one in said}) == 40
        for one in said:
            assert (await api.ended(one["execution_id"]))[-1]["event_type"] == "playbook.completed"

    async def test_a_child_stands_below_its_parent(self, api: Api) -> None:
        parent = await api.run(book(step("a")))
        child = await api.start(book(step("a")), parent_execution_id=parent)
        assert (await api.get(f"/executions/{child}"))["parent_execution_id"] == parent
        listed = await api.get("/executions", parent_execution_id=parent)
        assert [one["execution_id"] for one in listed["executions"]] == [child]

    @pytest.mark.parametrize(
        ("asked", "status", "said"),
        [
            ({}, 422, "name what to run"),
            ({"path": "t", "catalog_id": 1}, 422, "not by both"),
            ({"path": "nope"}, 404, "'nope'"),
            ({"path": "t", "version": 9}, 404, "t"),
            ({"catalog_id": "77"}, 404, "77"),
            ({"path": "t", "parent_execution_id": UNKNOWN}, 404, UNKNOWN),
            ({"path": "t", "payload": {}, "workload": {}}, 422, "two names"),
            ({"path": 5}, 422, "$.path"),
            ({"path": "t", "wrkload": {}}, 422, "wrkload"),
        ],
    )
    async def test_what_cannot_be_started(self, api: Api, asked: Any, status: int, said: str) -> None:
        await api.register(book(step("a")))
        problem = await api.post("/execute", asked, status)
        assert said in problem["detail"]
        assert (await api.get("/executions"))["executions"] == []

    async def test_a_bad_item_does_not_spoil_the_others(self, api: Api) -> None:
        await api.register(book(step("a")))
        said = await api.post("/execute/batch", {"items": [{"path": "t"}, {"path": "nope"}, {"pth": 1}, {"path": "t"}]})
        assert (said["accepted"], said["rejected"]) == (2, 2)
        assert [one["index"] for one in said["items"]] == [0, 1, 2, 3]
        assert [one["error"] and one["error"]["status"] for one in said["items"]] == [None, 404, 422, None]
        for one in (said["items"][0], said["items"][3]):
            await api.ended(one["execution_id"])


class TestLooking:
    async def test_an_execution_that_has_ended(self, api: Api) -> None:
        execution_id = await api.run(book(step("a", "b", set={"ctx.k": "{{ a.step }}"}), step("b")))
        found = await api.get(f"/executions/{execution_id}")
        assert (found["status"], found["path"], found["version"]) == ("COMPLETED", "t", 1)
        assert (found["progress"], found["result"], found["error"]) == (100, {"step": "b"}, None)
        assert found["end_time"] > found["start_time"]
        assert found["events_endpoint"] == f"/api/executions/{execution_id}/events"
        assert found["pagination"]["total_events"] == len(found["events"]) == found["event_count"]
        status = await api.get(f"/executions/{execution_id}/status")
        assert status["completed"] is True
        assert status["completed_steps"] == ["a", "b"]
        assert status["variables"] == {"k": "a"}
        check = await api.get(f"/executions/{execution_id}/cancellation-check")
        assert check == {
            "execution_id": execution_id, "status": "COMPLETED", "cancelled": False, "completed": True, "failed": False,
        }  # fmt: skip

    async def test_one_that_runs(self, api: Api, gate: Gate) -> None:
        execution_id = await api.start(book(step("a", "b"), step("b")))
        await gate.reached.wait()
        status = await api.get(f"/executions/{execution_id}/status")
        assert (status["status"], status["current_step"], status["completed"]) == ("RUNNING", "a", False)
        listed = (await api.get("/executions", status="running"))["executions"]
        assert [(one["execution_id"], one["progress"]) for one in listed] == [(execution_id, 0)]
        gate.open.set()
        await api.ended(execution_id)
        assert (await api.get("/executions", status="RUNNING"))["executions"] == []

    async def test_pages_and_cursors_show_the_same(self, api: Api) -> None:
        ids = [await api.run(book(step("a"))) for _ in range(7)]
        newest = ids[::-1]
        by_page = [
            one["execution_id"]
            for page in (1, 2, 3)
            for one in (await api.get("/executions", page=page, page_size=3))["executions"]
        ]
        assert by_page == newest
        assert (await api.get("/executions", page=9, page_size=3))["executions"] == []
        seen, cursor = [], None
        while True:
            found = await api.get("/executions", page_size=3, **({"cursor": cursor} if cursor else {}))
            seen += [one["execution_id"] for one in found["executions"]]
            await api.run(book(step("a")))  # somebody starts more meanwhile
            cursor = found["next_cursor"]
            if cursor is None:
                break
        assert seen == newest

    async def test_filters(self, api: Api) -> None:
        one = await api.run(book(step("a"), path="x/one"))
        await api.run(book(step("a"), path="x/two"))
        found = (await api.get("/executions", path="x/one", status="COMPLETED"))["executions"]
        assert [each["execution_id"] for each in found] == [one]
        assert (await api.get("/executions", path="x/one", status="FAILED"))["executions"] == []

    @pytest.mark.parametrize("path", ["", "/status", "/events", "/cancellation-check", "/stream", "/logs"])
    async def test_one_that_is_not_there(self, api: Api, path: str) -> None:
        assert UNKNOWN in (await api.get(f"/executions/{UNKNOWN}{path}", 404))["detail"]

    async def test_bad_pages(self, api: Api) -> None:
        for asked in ({"page": 0}, {"page_size": 0}, {"page_size": 1001}, {"status": "DONE"}, {"cursor": "?"}):
            await api.get("/executions", 422, **asked)
        assert "next_cursor" in (await api.get("/executions", 422, page=500, page_size=100))["hint"]

    async def test_what_tasks_print_is_there(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        assert (await api.get(f"/executions/{execution_id}/logs"))["lines"] == []


class TestEnding:
    async def test_cancelling_takes_the_called_along(self, api: Api, gate: Gate) -> None:
        child = book(step("wait"), path="child")
        parent = book(step("call", tool={"kind": "playbook", "path": "child"}))
        await api.register(child)
        execution_id = await api.start(parent)
        await gate.reached.wait()
        said = await api.post(f"/executions/{execution_id}/cancel", {"reason": "wrong day"})
        assert said["status"] == "cancelled"
        assert len(said["cancelled_executions"]) == 2
        for one in said["cancelled_executions"]:
            assert (await api.get(f"/executions/{one}"))["status"] == "CANCELLED"
        events = await api.get(f"/executions/{execution_id}/events", event_type="execution.cancelled")
        assert events["events"][-1]["context"]["reason"] == "wrong day"
        assert events["events"][-1]["node_name"] == "playbook"
        again = await api.post(f"/executions/{execution_id}/cancel")
        assert (again["status"], again["cancelled_executions"]) == ("already_completed", [])
        gate.open.set()

    async def test_without_cascade_the_called_go_on(self, api: Api, gate: Gate) -> None:
        await api.register(book(step("wait"), path="child"))
        execution_id = await api.start(book(step("call", tool={"kind": "playbook", "path": "child"})))
        await gate.reached.wait()
        said = await api.post(f"/executions/{execution_id}/cancel", {"cascade": False})
        assert said["cancelled_executions"] == [execution_id]
        gate.open.set()
        (child,) = (await api.get("/executions", path="child"))["executions"]
        assert (await api.ended(child["execution_id"]))[-1]["event_type"] == "playbook.completed"

    @pytest.mark.parametrize("status", ["FAILED", "COMPLETED"])
    async def test_finalising(self, api: Api, gate: Gate, status: str) -> None:
        execution_id = await api.start(book(step("a", "b"), step("b")))
        await gate.reached.wait()
        said = await api.post(f"/executions/{execution_id}/finalize", {"status": status, "reason": "enough"})
        assert (said["status"], said["execution_status"]) == ("finalized", status)
        found = await api.get(f"/executions/{execution_id}")
        assert found["status"] == status
        assert (found["error"] or {}).get("message") == ("enough" if status == "FAILED" else None)
        gate.open.set()
        again = await api.post(f"/executions/{execution_id}/finalize", {"status": "FAILED"})
        assert (again["status"], again["execution_status"]) == ("already_completed", status)

    @pytest.mark.parametrize("what", ["cancel", "finalize"])
    async def test_one_that_is_not_there(self, api: Api, what: str) -> None:
        assert (await api.post(f"/executions/{UNKNOWN}/{what}", {}, 404))["status"] == "not_found"

    async def test_cleaning_up(self, api: Api, gate: Gate) -> None:
        execution_id = await api.start(book(step("a")))
        await gate.reached.wait()
        assert (await api.post("/executions/cleanup", {"older_than_minutes": 60}))["cancelled_executions"] == []
        asked = {"older_than_minutes": 0, "dry_run": True}
        assert (await api.post("/executions/cleanup", asked))["cancelled_executions"] == [execution_id]
        assert (await api.get(f"/executions/{execution_id}/status"))["status"] == "RUNNING"
        said = await api.post("/executions/cleanup", {"older_than_minutes": 0})
        assert said["cancelled_executions"] == [execution_id]
        assert (await api.get(f"/executions/{execution_id}/cancellation-check"))["cancelled"] is True
        gate.open.set()


class TestRetrying:
    DOCUMENT = book(step("a", "b"), step("b", "c"), step("c"))

    @staticmethod
    def failing_at(name: str, calls: list[str]) -> Any:
        def body(call: Any) -> Any:
            calls.append(call.step)
            if call.step == name:
                raise Failed("no luck")
            return {"step": call.step}

        return body

    async def test_it_goes_on_from_the_step_that_failed(self, api: Api) -> None:
        calls: list[str] = []
        api.body = self.failing_at("b", calls)
        failed = await api.run(self.DOCUMENT)
        api.body = self.failing_at("", calls)
        said = await api.post(f"/executions/{failed}/retry")
        assert (said["retry_of"], said["step"], said["adopted"]) == (failed, "b", ["a"])
        await api.ended(said["execution_id"])
        assert (await api.get(f"/executions/{said['execution_id']}/status"))["completed"]
        assert calls == ["a", "b", "b", "c"]
        events = (await api.get(f"/executions/{said['execution_id']}/events"))["events"]
        assert events[0]["context"]["forked_from"]["execution_id"] == int(failed)

    async def test_a_step_a_value_and_a_key_may_be_named(self, api: Api) -> None:
        calls: list[str] = []
        api.body = self.failing_at("", calls)
        first = await api.run(self.DOCUMENT, payload={"n": 1, "m": 2})
        asked = {"step": "c", "payload": {"n": 5}, "idempotency_key": "once"}
        said = [await api.post(f"/executions/{first}/retry", asked) for _ in range(2)]
        assert said[0]["execution_id"] == said[1]["execution_id"] != first
        await api.ended(said[0]["execution_id"])
        assert calls == ["a", "b", "c", "c"]
        events = (await api.get(f"/executions/{said[0]['execution_id']}/events"))["events"]
        assert events[0]["context"]["workload"] == {"n": 5, "m": 2}

    async def test_a_later_version_may_go_on(self, api: Api) -> None:
        calls: list[str] = []
        api.body = self.failing_at("b", calls)
        failed = await api.run(self.DOCUMENT)
        await api.register(book(step("a", "b"), step("b", "d"), step("d")))
        api.body = self.failing_at("", calls)
        said = await api.post(f"/executions/{failed}/retry", {"latest": True})
        await api.ended(said["execution_id"])
        assert calls == ["a", "b", "b", "d"]
        assert (await api.get(f"/executions/{said['execution_id']}"))["version"] == 2

    async def test_what_cannot_be_retried_is_said(self, api: Api) -> None:
        api.body = self.failing_at("", [])
        done = await api.run(self.DOCUMENT)
        assert "no step of it has failed" in (await api.post(f"/executions/{done}/retry", {}, 422))["detail"]
        wrong = await api.post(f"/executions/{done}/retry", {"step": "bb"}, 422)
        assert (wrong["detail"], wrong["hint"]) == ("there is no step 'bb' in t", "did you mean 'b'?")
        await api.post(f"/executions/{done}/retry", {"step": "b", "version": 99}, 404)
        await api.post(f"/executions/{UNKNOWN}/retry", {}, 404)
        two = {"payload": {}, "workload": {}, "step": "b"}
        assert "two names of one thing" in (await api.post(f"/executions/{done}/retry", two, 422))["detail"]


class TestAnalysing:
    async def test_a_failure_is_named_and_something_to_try(self, api: Api) -> None:
        from tests.unit.runtime.workshop import Failed

        def body(_: Any) -> Any:
            raise Failed("no way in", kind="auth", code="HTTP_401")

        api.body = body
        execution_id = await api.run(book(step("a")))
        said = await api.post(f"/executions/{execution_id}/analyze")
        assert said["summary"]["status"] == "FAILED"
        assert [(one["severity"], one["code"], one["step"]) for one in said["findings"]] == [("error", "HTTP_401", "a")]
        assert "credential" in said["recommendations"][0]

    async def test_nothing_stands_out(self, api: Api) -> None:
        said = await api.post(f"/executions/{await api.run(book(step('a')))}/analyze")
        assert (said["findings"], said["recommendations"]) == ([], [])
        assert said["summary"]["commands"] == {"COMPLETED": 1}
