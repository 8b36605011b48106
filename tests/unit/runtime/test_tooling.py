"""What tasks are given to work with: which kinds run, under which limits, and who may begin at all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.errors import InvalidInput, InvalidSetting, Unavailable
from noetl.playbook import load
from noetl.runtime.driver import Origin
from noetl.runtime.embedded.runner import driver_of
from noetl.runtime.fork import Forks, Retry
from noetl.runtime.tooling import env_of, tooling_of
from noetl.settings import Bytes, Env, Seconds, Settings, Tools
from noetl.tools.python.tool import PythonTool
from tests.services.http import serving
from tests.unit.runtime.plant import Plant, opened
from tests.unit.runtime.workshop import as_text, book, step


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    async with opened(tmp_path) as made:
        yield made


def task(kind: str, **fields: Any) -> dict[str, Any]:
    return step("a", tool={"kind": kind, **fields})


class TestAdmission:
    async def test_a_kind_that_is_required_and_missing_keeps_an_execution_from_beginning(self, plant: Plant) -> None:
        document = book(task("noop"), executor={"requires": {"tools": ["noop", "nats", "teleport"]}})
        with pytest.raises(Unavailable) as refused:
            await plant.run(document)
        assert refused.value.message == (
            "t requires tools that cannot run here: nats (it needs the distributed runtime); "
            "teleport (it needs a tool of kind 'teleport')"
        )
        assert refused.value.hint is not None
        page = await plant.embedded.ledger.read_all(after_position=0, limit=10)
        assert list(page) == []

    async def test_a_store_that_is_not_here_keeps_an_execution_from_beginning(self, plant: Plant) -> None:
        document = book(step("a", tool={"kind": "noop"}, output={"store": {"kind": "s3"}}))
        with pytest.raises(Unavailable) as refused:
            await plant.run(document)
        assert refused.value.message == "step 'a' keeps its result in 's3', and this installation has no route there"
        assert refused.value.hint == 'set payloads.routes = ["s3=s3://bucket/prefix"], or leave output.store out'

    async def test_without_pyspark_a_spark_task_says_what_to_install(
        self, plant: Plant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noetl.runtime.spark.find_spec", lambda _: None)
        finished = await plant.run(book(task("spark", sql="SELECT 1")))
        assert finished.error is not None
        assert finished.error["code"] == "KIND_UNAVAILABLE"
        assert 'pip install "noetl[spark]"' in finished.error["message"]

    async def test_spark_begins_to_start_with_the_playbook_that_needs_it(
        self, plant: Plant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []
        monkeypatch.setattr("noetl.data.tool.SparkTool.prepare", lambda _, said: asked.append(said))
        tooling = tooling_of(plant.embedded, Origin(), directory=plant.place, scratch=plant.place / "scratch")
        conf = {"spark.sql.shuffle.partitions": 2}
        await tooling.admit(load(as_text(book(task("noop"))), "a.yaml"), {})
        needing = book(task("spark", sql="SELECT 1"), executor={"spec": {"spark": conf}})
        await tooling.admit(load(as_text(needing), "b.yaml"), {})
        assert asked == [conf]
        await tooling.close()

    async def test_a_transfer_does_not_ask_for_spark(self, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("noetl.runtime.spark.find_spec", lambda _: None)
        sides = {"source": {"type": "result", "rows": [{"n": 1}]}, "target": {"type": "files", "path": "out"}}
        finished = await plant.run(book(step("move", tool={"kind": "transfer", **sides})))
        assert finished.status == "COMPLETED", finished.error

    async def test_a_kind_that_is_here_is_enough(self, plant: Plant) -> None:
        document = book(task("noop"), executor={"requires": {"tools": ["noop", "playbook", "shell"]}})
        assert (await plant.run(document)).status == "COMPLETED"

    async def test_a_child_that_may_not_begin_is_the_error_of_its_call(self, plant: Plant) -> None:
        await plant.register(book(task("noop"), path="child", executor={"requires": {"tools": ["nats"]}}))
        finished = await plant.run(book(task("playbook", path="child")))
        assert finished.error is not None
        assert finished.error["code"] == "CHILD_FAILED"
        assert "child requires tools that cannot run here: nats" in finished.error["message"]

    async def test_an_unknown_feature_is_logged(self, plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
        document = book(task("noop"), executor={"requires": {"features": ["loops", "flying"]}})
        assert (await plant.run(document)).status == "COMPLETED"
        assert [record.getMessage() for record in caplog.records] == [
            "t requires the feature 'flying', which is not known here"
        ]

    async def test_a_payload_above_the_limit_is_refused(self, plant: Plant) -> None:
        limits = {"spec": {"policy": {"limits": {"max_payload_bytes": 20}}}}
        document = book(task("noop"), executor=limits, workload={"text": "a default may be as long as it likes"})
        assert (await plant.run(document, workload={"text": "short"})).status == "COMPLETED"
        with pytest.raises(InvalidInput, match="the payload has 33 bytes, t accepts at most 20B"):
            await plant.run(document, workload={"text": "rather too long for it"})


class TestSettings:
    async def test_shell_can_be_switched_off(self, tmp_path: Path) -> None:
        async with opened(tmp_path, {"tools": Tools(shell=False)}) as plant:
            finished = await plant.run(book(task("shell", command="echo hi")))
        assert finished.error is not None
        assert finished.error["code"] == "KIND_UNAVAILABLE"
        assert finished.error["message"].endswith("it is switched off by the setting tools.shell")

    async def test_http_asks_no_link_local_address_unless_told_so(self, plant: Plant) -> None:
        finished = await plant.run(book(task("http", url="http://169.254.169.254/")))
        assert finished.error is not None
        assert finished.error["code"] == "ADDRESS_BLOCKED"

    async def test_a_body_above_the_limit_goes_to_a_file_and_above_the_next_nowhere(self, tmp_path: Path) -> None:
        limits = Tools(http_in_memory=Bytes(10), http_in_file=Bytes(1000))
        async with serving() as server, opened(tmp_path, {"tools": limits}) as plant:
            server.answer("/some", text="x" * 500)
            server.answer("/much", text="x" * 5000)
            some = await plant.run(book(task("http", url=f"{server.url}/some")))
            much = await plant.run(book(task("http", url=f"{server.url}/much")))
        assert some.result["_file"]["bytes"] == 500
        assert "data" not in some.result
        assert much.error is not None
        assert much.error["code"] == "BODY_TOO_LARGE"

    async def test_tasks_of_a_kind_take_turns(self, tmp_path: Path) -> None:
        """Each holds a file while it runs; with one at a time nobody ever finds it there."""
        held = "if mkdir held; then sleep 0.05; rmdir held; else exit 1; fi"
        loop = {"in": [1, 2, 3, 4], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 4}}
        document = book(step("a", loop=loop, tool={"kind": "shell", "cmds": [held]}))
        async with opened(tmp_path, {"tools": Tools(at_once=("shell=1",))}) as plant:
            assert (await plant.run(document)).status == "COMPLETED"

    @pytest.mark.parametrize("said", ["shell", "shell=", "shell=0", "shell=some", "shell=-1"])
    async def test_a_limit_that_is_none(self, tmp_path: Path, said: str) -> None:
        async with opened(tmp_path, {"tools": Tools(at_once=(said,))}) as plant:
            with pytest.raises(InvalidSetting, match=f"tools.at_once: '{said}' is not a limit"):
                await plant.run(book(task("noop")))

    async def test_python_has_its_limits(self, tmp_path: Path) -> None:
        limits = Tools(python_time=Seconds(0.5), python_memory=Bytes(1 << 28), python_processes=1)
        async with opened(tmp_path, {"tools": limits}) as plant:
            slow = await plant.run(book(task("python", code="import time\ntime.sleep(30)")))
            large = await plant.run(book(task("python", code="result = len(bytearray(1 << 29))")))
        assert slow.error is not None
        assert (slow.error["kind"], slow.error["code"]) == ("timeout", "TIMEOUT")
        assert large.error is not None
        assert large.error["code"] == "PY_MemoryError"

    async def test_artifacts_may_lie_below_further_roots(self, tmp_path: Path) -> None:
        shared = tmp_path / "shared"
        shared.mkdir()
        (shared / "a.txt").write_text("hello")
        (tmp_path / "own").mkdir()
        get = book(task("artifact", action="get", uri=f"file://{shared}/a.txt"))
        async with opened(tmp_path / "own") as plant:
            assert (await plant.run(get)).status == "FAILED"
        async with opened(tmp_path / "own", {"tools": Tools(artifact_roots=(str(shared),))}) as plant:
            assert (await plant.run(get)).result["data"] == "hello"

    async def test_an_address_of_no_scheme_says_which_there_are(self, plant: Plant) -> None:
        finished = await plant.run(book(task("artifact", action="get", uri="ftp://host/a")))
        assert finished.error is not None
        assert (finished.error["kind"], finished.error["code"]) == ("schema", "FIELD_INVALID")
        assert "use one of noetl://, file://, s3://, gs://, " in finished.error["message"]


class TestEnvironment:
    async def test_templates_see_what_is_allowed_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STAGE", "test")
        monkeypatch.setenv("PRIVATE", "nobody's")
        document = book(
            step(
                "a",
                tool={"kind": "noop", "result": {"worker": "{{ env.STAGE }}", "not": "{{ env.PRIVATE }}"}},
                next={"arcs": [{"step": "b", "when": "{{ env.STAGE == 'test' }}"}]},
            ),
            step("b", tool={"kind": "python", "input": {"s": "{{ env.STAGE }}"}, "code": "result = [s, '{{ w }}']"}),
            workload={"w": "{{ env.STAGE }}", "none": "{{ env.PRIVATE }}"},
        )
        async with opened(tmp_path, {"env": Env(allow=("STAGE", "NOT_SET"))}) as plant:
            assert (await plant.run(document)).result == ["test", "test"]
        async with opened(tmp_path / "other") as plant:
            assert (await plant.run(document)).result == {"worker": None, "not": None}

    def test_a_key_of_ours_cannot_be_allowed(self) -> None:
        settings = Settings(env=Env(allow=("NOETL_WALLET__KEK",)))
        with pytest.raises(InvalidSetting, match="NOETL_WALLET__KEK is a key"):
            env_of(settings, os.environ)


class TestAuthority:
    async def test_it_is_recorded_and_everything_by_default(self, plant: Plant) -> None:
        finished = await plant.run(book(task("noop")))
        opening = (await plant.events(finished.execution_id))[0]
        assert opening.payload["authority"] == {"credentials": "*", "tool_kinds": "*", "grants": "*"}

    async def test_a_kind_that_is_not_in_it_does_not_run(self, plant: Plant) -> None:
        finished = await plant.run(
            book(task("shell", command="touch trace")), authority={"tool_kinds": ["python", "http"]}
        )
        assert finished.error is not None
        assert (finished.error["kind"], finished.error["code"]) == ("auth", "NOT_AUTHORISED")
        assert "tasks of kind 'shell'" in finished.error["message"]
        assert not (plant.place / "trace").exists()

    async def test_a_credential_that_is_not_in_it_is_not_used(self, plant: Plant) -> None:
        await plant.credential("crm", "bearer", token="not-a-real-token")
        finished = await plant.run(
            book(task("python", auth="crm", code="result = 1")), authority={"credentials": ["other"]}
        )
        assert finished.error is not None
        assert (finished.error["kind"], finished.error["code"]) == ("auth", "NOT_AUTHORISED")
        allowed = await plant.run(
            book(task("python", auth="crm", code="result = 1")), authority={"credentials": ["crm"]}
        )
        assert allowed.status == "COMPLETED"

    @pytest.mark.parametrize("text", ["{{ keychain.k.token }}", "{{ token('crm') }}"])
    async def test_nor_by_a_keychain_or_as_a_token(self, text: str, plant: Plant) -> None:
        await plant.credential("crm", "bearer", token="not-a-real-token")
        document = book(
            task("python", input={"t": text}, code="result = len(t)"),
            keychain=[{"name": "k", "kind": "credential", "credential": "crm"}],
        )
        assert (await plant.run(document)).result == 16
        finished = await plant.run(document, authority={"credentials": []})
        assert finished.error is not None
        assert finished.error["code"] == "NOT_AUTHORISED"

    async def test_a_child_has_no_more_than_its_parent(self, plant: Plant) -> None:
        await plant.register(book(task("shell", command="true"), path="child"))
        parent = book(task("playbook", path="child"))
        assert (await plant.run(parent)).status == "COMPLETED"
        finished = await plant.run(parent, authority={"tool_kinds": ["playbook"]})
        assert finished.error is not None
        assert finished.error["code"] == "CHILD_FAILED"
        assert "tasks of kind 'shell'" in finished.error["message"]
        refused = await plant.run(parent, authority={"tool_kinds": ["shell"]})
        assert refused.error is not None
        assert refused.error["code"] == "NOT_AUTHORISED"

    async def test_a_retry_has_no_more_than_its_source(self, plant: Plant) -> None:
        limited = {"credentials": "*", "tool_kinds": ["noop"], "grants": []}
        source = await plant.run(book(task("shell", command="true")), authority=limited)
        embedded = plant.embedded
        forks = Forks(embedded.ledger, embedded.payloads, driver_of(embedded, Origin()), "default")
        assert (await forks.plan(Retry(execution_id=source.execution_id))).authority == limited

    async def test_one_that_cannot_be_read_is_refused(self, plant: Plant) -> None:
        with pytest.raises(InvalidInput, match="authority has no 'tools'"):
            await plant.run(book(task("noop")), authority={"tools": []})


class TestCredentials:
    async def test_the_credential_of_a_bucket_is_resolved_for_duckdb(self, plant: Plant) -> None:
        await plant.credential("gcs", "gcs_hmac", key_id="GOOG1", secret="not-a-real-secret")
        select = "SELECT name FROM duckdb_secrets()"
        finished = await plant.run(book(task("duckdb", gcs_credential="gcs", query=select)))
        # Without the extension DuckDB cannot keep the secret, but it has been given one.
        assert finished.status == "COMPLETED" or (finished.error or {})["code"] == "EXTENSION_UNAVAILABLE"
        missing = await plant.run(book(task("duckdb", gcs_credential="gone", query=select)))
        assert missing.error is not None
        assert (missing.error["kind"], missing.error["code"]) == ("auth", "CREDENTIAL_UNAVAILABLE")

    async def test_the_credential_of_a_script_is_resolved(self, plant: Plant) -> None:
        await plant.credential("repo", "bearer", token="not-a-real-token")
        async with serving() as server:
            server.answer("/a.py", text="result = 41 + 1")
            script = {"uri": f"{server.url}/a.py", "source": {"type": "http", "auth": "repo"}}
            finished = await plant.run(book(task("python", script=script)))
            assert server.last.headers["Authorization"] == "Bearer not-a-real-token"
        assert finished.result == 42

    async def test_an_allowed_variable_is_a_credential(self, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NOETL_KEYCHAIN_ENV_VARS", "API_TOKEN")
        monkeypatch.setenv("API_TOKEN", "not-a-real-token")
        async with serving() as server:
            finished = await plant.run(book(task("http", url=server.url, auth={"type": "bearer", "key": "API_TOKEN"})))
            assert server.last.headers["Authorization"] == "Bearer not-a-real-token"
        assert finished.status == "COMPLETED"


async def test_a_process_for_python_is_started_ahead_only_where_there_is_such_a_task(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[Path] = []

    async def prepare(_: PythonTool, directory: Path = Path()) -> None:
        prepared.append(directory)

    monkeypatch.setattr(PythonTool, "prepare", prepare)
    await plant.run(book(task("noop")))
    assert prepared == []
    await plant.run(book(task("python", code="result = 1")))
    assert prepared == [plant.place]


class TestAddresses:
    async def test_bytes_are_kept_under_their_digest(self, plant: Plant) -> None:
        document = book(
            step("a", "b", tool={"kind": "artifact", "action": "put", "uri": "noetl://default/default/payloads",
                                 "data": {"n": [1, 2]}}),
            step("b", tool={"kind": "artifact", "action": "get", "uri": "{{ a.uri }}"}),
        )  # fmt: skip
        finished = await plant.run(document)
        assert finished.result["data"] == {"n": [1, 2]}
        assert finished.result["uri"].startswith("noetl://default/default/payloads/sha256/")

    async def test_a_result_that_was_stored_outside_of_its_event_is_read_by_its_reference(self, plant: Plant) -> None:
        document = book(
            step("a", "m", tool={"kind": "python", "code": "result = {'text': 'x' * 100_000, 'n': 7}"}),
            step("m", "b", tool={"kind": "python", "code": "result = 0"}),
            step("b", tool={"kind": "artifact", "action": "get", "result_ref": "{{ a._ref }}"}),
        )
        finished = await plant.run(document)
        assert finished.status == "COMPLETED", finished.error
        assert (finished.result["n"], len(finished.result["text"])) == (7, 100_000)

    @pytest.mark.parametrize(
        "uri",
        ["noetl://default/default/results/{id}/a~1/0/0/1@1", "noetl://execution/{id}/result/a/x"],
    )
    async def test_a_result_is_read_by_its_name(self, uri: str, plant: Plant) -> None:
        first = await plant.run(book(step("a", tool={"kind": "noop", "result": {"n": 7}})))
        get = {"kind": "artifact", "action": "get", "uri": uri.replace("{id}", str(first.execution_id))}
        finished = await plant.run(book(step("b", tool=get)))
        assert finished.status == "COMPLETED", finished.error
        assert finished.result["n"] == 7

    async def test_a_value_that_looks_like_a_result_of_ours_comes_back_as_it_was(self, plant: Plant) -> None:
        looks = {"result": {"status": "ok", "context": 1}}
        document = book(
            step("a", "b", tool={"kind": "artifact", "action": "put", "uri": "noetl://default/default/payloads",
                                 "compress": False, "data": looks}),
            step("b", tool={"kind": "artifact", "action": "get", "uri": "{{ a.uri }}"}),
        )  # fmt: skip
        assert (await plant.run(document)).result["data"] == looks

    @pytest.mark.parametrize(
        ("action", "uri", "kind"),
        [
            ("get", "noetl://default/default/payloads/sha256/" + "0" * 64, "missing_reference"),
            ("get", "noetl://default/default/results/17/a~1/0/0/1@1", "missing_reference"),
            ("get", "noetl://other/default/payloads/sha256/" + "0" * 64, "storage_access"),
            ("get", "noetl://default/default/datasets/orders@1", "storage_access"),
            ("get", "noetl://default/../x", "schema"),
            ("put", "noetl://default/default/datasets/orders@1", "schema"),
            ("put", "noetl://other/default/payloads", "schema"),
        ],
    )
    async def test_what_is_not_there_or_not_ours(self, action: str, uri: str, kind: str, plant: Plant) -> None:
        finished = await plant.run(book(task("artifact", action=action, uri=uri, data="x")))
        assert finished.error is not None
        assert finished.error["kind"] == kind, finished.error
