"""Playbooks with spark tasks, run as users run them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from noetl.kernel.names import PayloadName
from noetl.kernel.names import parse as parse_name
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.playbook.parse import parse
from noetl.runtime.driver import Origin, Request
from noetl.runtime.embedded.runner import open_runner
from noetl.runtime.notices import Notice
from noetl.settings import Spark
from tests.docs.test_tools import fits, page_of
from tests.e2e.cli import PROJECT_ROOT
from tests.services.emulator import wait_for
from tests.unit.runtime.plant import opened
from tests.unit.runtime.workshop import as_text, book, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark": Spark(master="local[2]")}
EXAMPLE = re.compile(r"```yaml\n(.*?)```\n\nThe run ends with this result:\n\n```json\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    ("least", "failed", "rows", "totals", "tax"),
    [
        (1, {"not_negative": 2, "has_a_title": 500, "has_an_id": 0}, 1998,
         {"east": 500, "north": 498, "south": 500, "west": 500}, 1995801),
        (9980, {"not_negative": 0, "has_a_title": 0, "has_an_id": 0}, 2, {"east": 2}, 3993),
    ],
)  # fmt: skip
async def test_the_example(
    spark: SparkSession, tmp_path: Path, least: int, failed: dict[str, int], rows: int, totals: dict[str, int], tax: int
) -> None:
    document = (PROJECT_ROOT / "examples" / "16_spark_sql.yaml").read_text(encoding="utf-8")
    async with opened(tmp_path, SETTINGS) as plant:
        finished = await plant.run(document, workload={"least": least})
        assert finished.status == "COMPLETED", finished.error
        found = finished.result
        assert (found["failed"], found["rows"], found["totals"], found["tax"]) == (failed, rows, totals, tax)
        assert (await plant.embedded.verifier.verify(Stream("default", execution_stream(finished.execution_id)))).ok


async def test_the_example_of_the_reference_page_ends_as_it_says(spark: SparkSession, tmp_path: Path) -> None:
    example = EXAMPLE.search(page_of("spark"))
    assert example is not None
    assert [str(problem) for problem in parse(example[1], "spark.md").problems] == []
    (tmp_path / "orders.csv").write_text("customer,amount\nAda,10\nBob,-5\nAda,20\n", encoding="utf-8")
    async with opened(tmp_path, SETTINGS) as plant:
        finished = await plant.run(example[1])
        assert finished.status == "COMPLETED", finished.error
        assert fits(json.loads(example[2]), finished.result), json.dumps(finished.result, indent=2)


async def test_a_secret_in_a_query_is_not_in_the_plan_that_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    secret = "a-very-long-secret-value"
    task = {"kind": "spark", "sql": "SELECT id, '{{ keychain.pw.password }}' AS a FROM range(3)"}
    entry = {"name": "pw", "kind": "credential", "credential": "shop"}
    async with opened(tmp_path, SETTINGS) as plant:
        await plant.credential("shop", "basic", username="me", password=secret)
        finished = await plant.run(book(step("a", tool=task), keychain=[entry]))
        assert finished.status == "COMPLETED", finished.error
        name = parse_name(finished.result["plan"])
        assert isinstance(name, PayloadName)
        plan = await plant.embedded.payloads.fetch(await plant.embedded.payloads.ref_of(name))
        assert b"Physical Plan" in plan
        assert secret.encode() not in plan
        assert secret not in json.dumps(finished.result)


async def test_a_secret_in_a_row_that_fails_a_check_is_not_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    secret = "a-very-long-secret-value"
    task = {
        "kind": "spark",
        "sql": "SELECT id, repeat('-', 990 * (id - 1)) || '{{ keychain.pw.password }}' AS a FROM range(3)",
        "expect": [{"name": "few", "check": "id < 1", "on_fail": "fail"}],
    }
    entry = {"name": "pw", "kind": "credential", "credential": "shop"}
    async with opened(tmp_path, SETTINGS) as plant:
        await plant.credential("shop", "basic", username="me", password=secret)
        finished = await plant.run(book(step("a", tool=task), keychain=[entry]))
        assert finished.status == "FAILED"
        said = msgspec.json.encode(await plant.events(finished.execution_id)).decode()
        assert '"failed":2' in said
        assert '"examples":[{' in said, said[said.find("examples") :][:300]
        assert secret[:6] not in said


async def test_two_playbooks_that_want_different_sessions_cannot_share_one(spark: SparkSession, tmp_path: Path) -> None:
    document = book(step("a", tool={"kind": "spark", "sql": "SELECT 1 AS a"}))
    document["executor"] = {**document.get("executor", {}), "spec": {"spark": {"spark.driver.memory": "3g"}}}
    async with opened(tmp_path, SETTINGS) as plant:
        refused = await plant.run(document)
        document["executor"]["spec"]["spark"] = {"spark.sql.shuffle.partitions": 7}
        shared = await plant.run(document)
    assert (refused.status, shared.status) == ("FAILED", "COMPLETED")
    assert refused.error is not None
    assert refused.error["code"] == "SPARK_SETTINGS_DIFFER"
    assert "has spark.driver.memory = 1g, which is fixed when it starts, and" in refused.error["message"]
    assert "or run this playbook in a process of its own" in refused.error["message"]


async def test_a_timeout_stops_the_job_at_once(spark: SparkSession, tmp_path: Path) -> None:
    code = (
        "import time\n\ndef slow(batches):\n    time.sleep(60)\n    yield from batches\n\n"
        "def main(spark):\n    return spark.range(2).mapInArrow(slow, 'id long')\n"
    )
    task = {"kind": "spark", "code": code, "output": {"path": "out"}, "spec": {"timeout": "2s"}}
    begun = time.monotonic()
    async with opened(tmp_path, SETTINGS) as plant:
        finished = await plant.run(book(step("a", tool=task)))
    assert time.monotonic() - begun < 30
    assert finished.error is not None
    assert finished.error["code"] == "TIMEOUT"
    tracker = spark.sparkContext.statusTracker()
    await asyncio.to_thread(wait_for, lambda: not tracker.getActiveStageIds(), "a stage goes on")
    assert not (tmp_path / "out").exists()


async def test_what_code_prints_is_heard_without_secrets(spark: SparkSession, tmp_path: Path) -> None:
    heard: list[Notice] = []
    code = "def main(spark, word):\n    print('from', 'main', word)\n    return None\n"
    task = {"kind": "spark", "code": code, "input": {"word": "{{ keychain.pw.password }}"}}
    entry = {"name": "pw", "kind": "credential", "credential": "shop"}
    async with opened(tmp_path, SETTINGS) as plant:
        await plant.credential("shop", "basic", username="me", password="a-very-long-secret-value")
        async with open_runner(
            plant.embedded, Origin(), directory=tmp_path, scratch=tmp_path / "s", slots=1, on_notice=heard.append
        ) as runner:
            started = await runner.start(Request(document=as_text(book(step("a", tool=task), keychain=[entry]))))
            await runner.resume(started)
            assert (await runner.wait(started)).status == "COMPLETED"
    said = "".join(notice.text for notice in heard if notice.what == "log")
    assert said.startswith("from main ")
    assert "secret" not in said
