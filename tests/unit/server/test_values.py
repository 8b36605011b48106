"""Variables, results, replayed states and templates over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.server.api import Api, book, step

UNKNOWN = "318485246779594112"


@pytest.fixture
async def held(api: Api) -> str:
    """An execution in the middle: `a` has ended and has set something, `b` waits."""
    reached = asyncio.Event()

    async def body(call: Any) -> Any:
        if call.step == "b":
            reached.set()
            await asyncio.Event().wait()
        return {"x": 1}

    api.body = body
    execution_id = await api.start(
        book(step("a", "b", set={"ctx.k": "{{ a.x }}", "ctx.deep.er": [1, 2]}), step("b"), workload={"day": "mon"})
    )
    await reached.wait()
    return execution_id


class TestVariables:
    async def test_they_are_the_context(self, api: Api, held: str) -> None:
        assert (await api.get(f"/vars/{held}"))["variables"] == {"k": 1, "deep": {"er": [1, 2]}}
        assert (await api.get(f"/vars/{held}/k"))["value"] == 1
        assert (await api.get(f"/vars/{held}/deep.er"))["value"] == [1, 2]
        await api.get(f"/vars/{held}/nope", 404)
        await api.get(f"/vars/{held}/k.deeper", 404)

    async def test_they_can_be_set_and_removed_and_the_log_knows(self, api: Api, held: str) -> None:
        said = await api.post(f"/vars/{held}", {"variables": {"k": {"a": 1}, "k.b": 2, "new.one": None}})
        assert said["variables"] == {"k": {"a": 1, "b": 2}, "deep": {"er": [1, 2]}, "new": {"one": None}}
        gone = await api.client.delete(f"/api/vars/{held}/deep.er")
        assert gone.json()["variables"]["deep"] == {}
        events = await api.get(f"/executions/{held}/events", event_type="ctx.patched")
        assert [event["context"] for event in events["events"]] == [
            {"set": {"ctx.k": {"a": 1, "b": 2}, "ctx.new.one": None}},
            {"unset": ["ctx.deep.er"]},
        ]
        state = await api.get("/replay/state", execution_id=held)
        assert state["ctx"] == {"k": {"a": 1, "b": 2}, "deep": {}, "new": {"one": None}}
        service = await api.services.of("default", "default")
        rebuilt = await service.reading._others.execution(int(held))
        assert rebuilt.control.ctx == (await api.get(f"/vars/{held}"))["variables"]

    async def test_a_large_value_survives(self, api: Api, held: str) -> None:
        large = ["x" * 1000] * 50
        await api.post(f"/vars/{held}", {"variables": {"large": large}})
        service = await api.services.of("default", "default")
        assert (await service.reading._others.latest(int(held))).control.ctx["large"] == large

    async def test_later_steps_see_them(self, api: Api) -> None:
        reached, open_ = asyncio.Event(), asyncio.Event()

        async def body(call: Any) -> Any:
            if call.step == "a":
                reached.set()
                await open_.wait()
            return call.input

        api.body = body
        execution_id = await api.start(book(step("a", "b"), step("b", give={"n": "{{ ctx.n }}"})))
        await reached.wait()
        await api.post(f"/vars/{execution_id}", {"variables": {"n": 7}})
        open_.set()
        await api.ended(execution_id)
        assert (await api.get(f"/result/{execution_id}/b"))["value"] == {"n": 7}

    async def test_an_execution_that_has_ended_has_none_to_set(self, api: Api) -> None:
        execution_id = await api.run(book(step("a", set={"ctx.k": 1})))
        await api.post(f"/vars/{execution_id}", {"variables": {"k": 2}}, 409)
        assert (await api.client.delete(f"/api/vars/{execution_id}/k")).status_code == 409

    @pytest.mark.parametrize("name", ["", ".", "a..b", "a.", ".".join("a" * 40), "x" * 2000])
    async def test_bad_names(self, api: Api, held: str, name: str) -> None:
        await api.post(f"/vars/{held}", {"variables": {name: 1}}, 422)

    async def test_of_one_that_is_not_there(self, api: Api) -> None:
        await api.get(f"/vars/{UNKNOWN}", 404)
        await api.post(f"/vars/{UNKNOWN}", {"variables": {"a": 1}}, 404)
        assert (await api.client.delete(f"/api/vars/{UNKNOWN}/a")).status_code == 404


class TestResults:
    async def test_of_a_step_and_of_the_execution(self, api: Api) -> None:
        execution_id = await api.run(book(step("a", "b", give={"rows": [1, 2]}), step("b")))
        found = await api.get(f"/result/{execution_id}/a")
        assert (found["value"], found["rows"]) == ({"rows": [1, 2]}, 2)
        assert (await api.get(f"/result/{execution_id}"))["step"] == "b"
        assert await api.get(f"/temp/{execution_id}/a") == found
        assert "steps that ended: a, b" in (await api.get(f"/result/{execution_id}/c", 404))["hint"]

    async def test_a_large_one_comes_whole_and_by_its_reference(self, api: Api) -> None:
        large = {"text": "x" * 200_000, "n": 3}
        api.body = lambda _: large
        execution_id = await api.run(book(step("a")))
        assert (await api.get(f"/result/{execution_id}/a"))["value"] == large
        shown = (await api.get(f"/executions/{execution_id}"))["result"]
        assert shown["n"] == 3
        for route in ("result", "temp"):
            resolved = await api.get(f"/{route}/resolve", ref=shown["_ref"])
            assert (resolved["value"], resolved["media_type"]) == (large, "application/json")

    async def test_by_older_references(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        ref = f"noetl://execution/{execution_id}/result/a/abc"
        assert (await api.get("/result/resolve", ref=ref))["value"] == {"step": "a"}

    async def test_references_that_lead_nowhere(self, api: Api) -> None:
        digest = "0" * 64
        await api.get("/result/resolve", 404, ref=f"noetl://default/default/payloads/sha256/{digest}")
        await api.get("/result/resolve", 404, ref=f"noetl://other/default/payloads/sha256/{digest}")
        await api.get("/result/resolve", 404, ref=f"noetl://execution/{UNKNOWN}/result/a/b")
        await api.get("/result/resolve", 422, ref="http://example.com/x")
        await api.get("/result/resolve", 422)

    async def test_of_a_loop(self, api: Api) -> None:
        looping = step("each", loop={"in": [1, 2, 3], "iterator": "n"}, give={"n": "{{ n }}"})
        execution_id = await api.run(book(looping))
        found = await api.get("/aggregate/loop/results", execution_id=execution_id, step="each")
        assert found["results"] == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert found["stats"] == {"total": 3, "success": 3, "failed": 0}
        assert found["status"] == "COMPLETED"
        problem = await api.get("/aggregate/loop/results", 404, execution_id=execution_id, step="x")
        assert problem["hint"] == "its loops: each"

    async def test_of_a_loop_in_the_middle(self, api: Api) -> None:
        reached = asyncio.Event()

        async def body(call: Any) -> Any:
            if call.input["n"] == 2:
                reached.set()
                await asyncio.Event().wait()
            return call.input

        api.body = body
        execution_id = await api.start(
            book(step("each", loop={"in": [1, 2, 3], "iterator": "n"}, give={"n": "{{ n }}"}))
        )
        await reached.wait()
        found = await api.get("/aggregate/loop/results", execution_id=execution_id, step="each")
        assert (found["status"], found["results"]) == ("RUNNING", [{"n": 1}])
        assert found["stats"] == {"total": 3, "success": 1, "failed": 0}


class TestReplay:
    async def test_the_state_is_the_live_one(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        state = await api.get("/replay/state", execution_id=execution_id)
        assert (state["status"], state["execution_id"]) == ("COMPLETED", execution_id)
        first = (await api.get(f"/executions/{execution_id}/events"))["events"][0]
        begun = await api.get("/replay/state", execution_id=execution_id, as_of_event_id=first["event_id"])
        assert (begun["status"], begun["event_count"]) == ("PENDING", 1)
        assert begun["checksum"] != state["checksum"]
        at_time = await api.get("/replay/state", execution_id=execution_id, as_of_time=first["created_at"])
        assert at_time["event_count"] >= 1

    async def test_at_most_one_moment(self, api: Api) -> None:
        execution_id = await api.run(book(step("a")))
        asked = {"execution_id": execution_id, "as_of_position": 1, "as_of_event_id": 5}
        assert "exclude each other" in (await api.get("/replay/state", 422, **asked))["detail"]
        await api.get("/replay/state", 422, execution_id=execution_id, as_of_time="yesterday")
        await api.get("/replay/state", 404, execution_id=execution_id, as_of_event_id=5)
        await api.get("/replay/state", 404, execution_id=UNKNOWN)


class TestRendering:
    async def test_with_what_the_execution_knows(self, api: Api, held: str) -> None:
        template = {"sum": "{{ a.x + extra }}", "day": ["{{ day }}", "{{ ctx.k }}"]}
        said = await api.post(
            "/context/render", {"execution_id": held, "template": template, "extra_context": {"extra": 2}}
        )
        assert said["rendered"] == {"sum": 3, "day": ["mon", 1]}
        assert {"a", "k", "day", "extra"} <= set(said["context_keys"])

    async def test_what_cannot_be_rendered(self, api: Api, held: str) -> None:
        for template in ("{{ nope", "{{ nope.deeper }}"):
            await api.post("/context/render", {"execution_id": held, "template": template, "strict": True}, 422)
        await api.post("/context/render", {"execution_id": UNKNOWN, "template": "x"}, 404)
        await api.post("/context/render", {"execution_id": "x", "template": "x"}, 422)

    async def test_secrets_are_not_among_it(self, api: Api, held: str) -> None:
        asked = {"execution_id": int(held), "template": "{{ keychain.db.password }}", "strict": True}
        await api.post("/context/render", asked, 422)
