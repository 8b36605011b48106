"""What the language reference says of tools and their input, as a playbook meets it: sections 1.4, 7.4, 9 and 10."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.kernel.event import Json
from tests.services.http import Server, serving
from tests.unit.runtime.plant import Plant, opened
from tests.unit.runtime.workshop import book, step


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        made.answer("/rates", text='{"rates": {"EUR": 1}, "page": 3}', content_type="application/json")
        yield made


def python(code: str, **more: Any) -> Json:
    return {"kind": "python", "code": code, **more}


async def result_of(plant: Plant, document: Json, **request: Any) -> Any:
    finished = await plant.run(document, **request)
    assert finished.status == "COMPLETED", finished.error
    return finished.result


async def error_of(plant: Plant, document: Json) -> Json:
    error = (await plant.run(document)).error
    assert error is not None
    return error


class TestImplicitData:
    """NTL-931: code that reads `data` and was not given it."""

    async def test_a_name_of_the_workload(self, plant: Plant) -> None:
        document = book(step("a", tool=python("result = data")), workload={"data": [1, 2]})
        assert await result_of(plant, document) == [1, 2]

    async def test_else_the_result_of_the_step_before(self, plant: Plant) -> None:
        document = book(step("a", "b", tool=python("result = {'n': 5}")), step("b", tool=python("result = data['n']")))
        assert await result_of(plant, document) == 5

    async def test_else_the_result_of_the_task_before(self, plant: Plant) -> None:
        tasks = [{"name": "x", **python("result = {'n': 5}")}, {"name": "y", **python("result = {'m': data['n']}")}]
        assert (await result_of(plant, book(step("a", tool=tasks))))["m"] == 5

    async def test_an_attribute_of_that_name_is_something_else(self, plant: Plant) -> None:
        code = "class T:\n    data = 1\nresult = T.data"
        assert await result_of(plant, book(step("a", tool=python(code)))) == 1


class TestContext:
    async def test_it_holds_workload_ctx_results_and_identity(self, plant: Plant) -> None:
        document = book(
            step("a", "b", tool=python("result = {'n': 5}"), set={"ctx.k": 1}),
            step("b", tool=python("result = context")),
            workload={"w": 2},
        )
        finished = await plant.run(document)
        own = str(finished.execution_id)
        assert finished.result == {
            "workload": {"w": 2}, "ctx": {"k": 1}, "a": {"n": 5}, "execution_id": own, "parent_execution_id": None,
            "catalog_id": None,
            "job": {"uuid": own, "execution_id": own, "id": own},
        }  # fmt: skip


class TestScripts:
    async def test_inline_text_is_rendered_as_code_is(self, plant: Plant) -> None:
        script = {"source": {"type": "inline", "code": "result = {{ n }} + 1"}}
        document = book(step("a", tool={"kind": "python", "script": script}), workload={"n": 1})
        assert await result_of(plant, document) == 2

    async def test_inline_text_that_prints_what_is_undefined_is_used_as_it_stands(self, plant: Plant) -> None:
        script = {"source": {"type": "inline", "code": "result = f'{{ nobody }}'"}}
        assert await result_of(plant, book(step("a", tool={"kind": "python", "script": script}))) == "{ nobody }"

    async def test_loaded_text_sees_what_the_step_sees(self, plant: Plant) -> None:
        (plant.place / "a.py").write_text("result = [{{ n }}, {{ before.m }}]")
        document = book(
            step("before", "a", tool=python("result = {'m': 4}")),
            step("a", tool={"kind": "python", "script": {"source": {"type": "file", "path": "a.py"}}}),
            workload={"n": 3},
        )
        assert await result_of(plant, document) == [3, 4]


class TestWorkbook:
    def entry(self, tool: Json, **more: Any) -> list[Json]:
        return [{"name": "entry", "tool": tool, **more}]

    async def test_the_input_of_the_call_wins(self, plant: Plant) -> None:
        workbook = self.entry(python("result = {'v': n * m}", input={"n": 2, "m": 3}))
        call = {"kind": "workbook", "name": "entry", "input": {"m": 10}}
        assert await result_of(plant, book(step("a", tool=call), workbook=workbook)) == {"v": 20}

    async def test_a_result_reads_as_that_of_the_entrys_tool(self, plant: Plant, server: Server) -> None:
        workbook = self.entry({"kind": "http", "url": f"{server.url}/rates"})
        document = book(
            step("a", "b", tool={"kind": "workbook", "name": "entry"}),
            step("b", tool={"kind": "noop", "result": "{{ a.rates.EUR }}"}),
            workbook=workbook,
        )
        assert await result_of(plant, document) == 1

    async def test_what_an_entry_expects_is_advice(self, plant: Plant) -> None:
        expects = {"expects": ["n", "z"], "returns": ["v", "w"]}
        workbook = self.entry(python("result = {'v': n}", input={"n": 2}), **{"assert": expects})
        finished = await plant.run(book(step("a", tool={"kind": "workbook", "name": "entry"}), workbook=workbook))
        assert finished.result == {"v": 2}
        (done,) = [e for e in await plant.events(finished.execution_id) if e.event_type == "call.done"]
        assert done.payload["warnings"] == [
            "task 'a_task': workbook entry 'entry' expects the input 'z'",
            "task 'a_task': workbook entry 'entry' should return 'w'",
        ]


class TestHttp:
    async def test_a_key_that_the_result_lacks_is_looked_up_in_the_body(self, plant: Plant, server: Server) -> None:
        document = book(
            step("a", "b", tool={"kind": "http", "url": f"{server.url}/rates"}),
            step("b", tool={"kind": "noop", "result": "{{ [a.rates.EUR, a.data.page, a.status_code, a.status] }}"}),
        )
        assert await result_of(plant, document) == [1, 3, 200, "ok"]

    async def test_a_retry_keeps_its_idempotency_key_and_another_visit_has_its_own(
        self, plant: Plant, server: Server
    ) -> None:
        server.answer("/busy", status=503)
        retry = {
            "policy": {"rules": [{"when": "{{ output.error.retryable }}", "then": {"do": "retry", "attempts": 2}}]}
        }
        document = book(step("a", tool={"kind": "http", "url": f"{server.url}/busy", "spec": retry}))
        await plant.run(document)
        await plant.run(document)
        keys = [seen.headers["Idempotency-Key"] for seen in server.seen]
        assert len(keys) == 4
        assert keys[0] == keys[1] != keys[2] == keys[3]


class TestAuth:
    @pytest.mark.parametrize(
        ("auth", "said"),
        [
            ("gone", "there is no credential 'gone'"),
            ({"source": "adc", "service": "gcs"}, "auth from 'adc' is not available here"),
            (
                {"api": {"type": "bearer", "key": "k", "provider": "secret_manager"}},
                "auth from 'secret_manager' is not",
            ),
        ],
    )
    async def test_what_cannot_be_had_is_an_error_of_kind_auth(self, auth: Any, said: str, plant: Plant) -> None:
        error = await error_of(plant, book(step("a", tool=python("result = 1", auth=auth))))
        assert (error["kind"], error["code"]) == ("auth", "CREDENTIAL_UNAVAILABLE")
        assert said in error["message"]

    async def test_a_name_may_be_a_template_and_must_be_defined(self, plant: Plant) -> None:
        await plant.credential("crm", "bearer", token="not-a-real-token")
        document = book(step("a", tool=python("result = len(os.environ['TOKEN'])", auth="{{ name }}")))
        assert await result_of(plant, document, workload={"name": "crm"}) == 16
        assert (await error_of(plant, document))["code"] == "TEMPLATE_UNDEFINED"

    async def test_aliases_are_prefixes_of_variables(self, plant: Plant) -> None:
        await plant.credential("crm", "bearer", token="not-a-real-token")
        auth = {"one": "crm", "two": {"source": "credential", "key": "crm"}}
        code = "result = os.environ['ONE_TOKEN'] == os.environ['TWO_TOKEN']"
        assert await result_of(plant, book(step("a", tool=python(code, auth=auth)))) is True


class TestKeychain:
    async def test_an_entry_reads_the_workload_by_bare_name_and_earlier_entries(
        self, plant: Plant, server: Server
    ) -> None:
        server.answer("/token", text='{"access_token": "not-a-real-token", "expires_in": 3600}')
        await plant.credential("client", "secret", secret="s3cr3t-of-ours")
        entries = [
            {"name": "client", "kind": "credential", "credential": "client"},
            {"name": "api", "kind": "oauth2", "endpoint": "{{ base }}/token", "auto_renew": True,
             "data": {"client_secret": "{{ keychain.client.secret }}", "scope": "{{ workload.scope }}"}},
        ]  # fmt: skip
        headers = {"Authorization": "Bearer {{ keychain.api.access_token }}"}
        document = book(
            step("a", "b", tool={"kind": "http", "url": "{{ base }}/x", "headers": headers}),
            step("b", tool={"kind": "http", "url": "{{ base }}/y", "headers": headers}),
            keychain=entries,
            workload={"base": server.url, "scope": "read"},
        )
        await result_of(plant, document)
        assert [seen.path for seen in server.seen] == ["/token", "/x", "/y"]
        assert server.seen[0].body == b"client_secret=s3cr3t-of-ours&scope=read"
        assert {seen.headers["Authorization"] for seen in server.seen[1:]} == {"Bearer not-a-real-token"}

    async def test_many_iterations_that_need_a_token_ask_for_one(self, plant: Plant, server: Server) -> None:
        server.answer("/token", text='{"access_token": "not-a-real-token", "expires_in": 3600}')
        entry = {"name": "api", "kind": "oauth2", "endpoint": f"{server.url}/token"}
        task = python("result = len(t)", input={"t": "{{ keychain.api.access_token }}"})
        loop = {"in": "{{ [1, 2, 3, 4] }}", "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 4}}
        result = await result_of(plant, book(step("a", tool=task, loop=loop), keychain=[entry]))
        assert result["results"] == [16, 16, 16, 16]
        assert len(server.seen) == 1
