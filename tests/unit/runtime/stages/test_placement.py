"""Where a stage runs, and why not on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.data.session import SessionConf
from noetl.playbook import load
from noetl.runtime.stages.placement import Placement, is_worth_it, why_no_spark, why_not_on_spark
from noetl.runtime.stages.spark_host import NotOnSpark, SparkHost, SparkOrWorker
from noetl.settings import Payloads, Settings
from tests.stagework import Puppet, Stage, plan_of

LOCAL = SessionConf(master="local[2]")


DOCUMENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t}
workflow:
- step: load
  loop: {in: [1], iterator: row, spec: {mode: fanout}}
  tool: {kind: noop}
"""


NOTHING_RUNS: Any = None
"""Where slots would find the stage that they belong to."""


def placed(rows: int | None, place: Path, *, must: bool = False, settings: Settings | None = None) -> Placement:
    """Where a stage of so many rows goes that may run on Spark."""
    spark = SparkHost(settings or Settings(), place, place, NOTHING_RUNS)
    return SparkOrWorker(spark, Puppet(), must=must).place(msgspec.structs.replace(plan_of(), document=DOCUMENT), rows)


def why(code: str = "result = 1", *, settings: Settings | None = None, conf: SessionConf = LOCAL) -> str | None:
    text = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: t, path: t}}
workflow:
- step: spread
  loop: {{in: [1], iterator: row, spec: {{mode: fanout}}}}
  tool: {{kind: python, input: {{x: "{code}"}}, code: "result = 1"}}
"""
    playbook = load(text, "t.yaml")
    return why_not_on_spark(playbook, playbook.steps["spread"], settings or Settings(), conf)


def test_a_plain_step_on_this_machine_can() -> None:
    assert why() is None
    assert why(conf=SessionConf(master="spark://127.0.0.1:7077")) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"conf": SessionConf(remote="sc://host:15002")}, "Spark Connect"),
        ({"conf": SessionConf(master="spark://far:7077")}, "the executors of spark://far:7077 are on others"),
        ({"settings": Settings(payloads=Payloads(encrypt=True))}, "executors are not given the keys"),
        ({"settings": Settings(payloads=Payloads(url="memory://"))}, "in the memory of this process"),
        ({"code": "{{ 'x' | encrypt_secret }}"}, "encrypt_secret needs the key of the wallet"),
    ],
)
def test_what_executors_cannot_reach_keeps_a_step_from_them(given: dict[str, Any], said: str) -> None:
    found = why(**given)
    assert found is not None
    assert said in found


def test_a_store_that_executors_reach_may_be_used_by_a_cluster() -> None:
    settings = Settings(payloads=Payloads(url="s3://bucket/payloads"))
    assert why(settings=settings, conf=SessionConf(master="spark://far:7077")) is None


def test_without_java_it_says_where_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    found = why_no_spark()
    assert found is not None
    assert "/no/such/java" in found


def test_a_stage_goes_there_by_itself_only_if_workers_would_need_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    rows, whole = plan_of(), plan_of(process="frame")
    assert not is_worth_it(rows, 50_000, warm=False)
    assert is_worth_it(rows, 50_000, warm=True)
    assert is_worth_it(rows, 200_000, warm=False)
    assert not is_worth_it(whole, 5_000_000, warm=False)
    assert is_worth_it(whole, 50_000_000, warm=False)
    assert not is_worth_it(whole, 20_000, 200, warm=True)
    assert is_worth_it(whole, 20_000, 2_000, warm=True)
    assert not is_worth_it(whole, 20_000, 2_000, warm=False)
    assert not is_worth_it(plan_of("loop"), None, warm=True)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert not is_worth_it(rows, 10_000_000, warm=True)


def test_a_small_stage_says_why_it_stays(tmp_path: Path) -> None:
    said = placed(10, tmp_path)
    assert (said.asked, said.host, said.rows) == ("auto", "worker", 10)
    assert said.reason == "workers are done before Spark would pay"


def test_a_large_one_that_cannot_go_says_what_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    settings = Settings(payloads=Payloads(encrypt=True))
    monkeypatch.setattr("noetl.runtime.stages.spark_host.why_no_spark", lambda: None)
    said = placed(1_000_000, tmp_path, settings=settings)
    assert (said.host, said.reason) == ("worker", "payloads are encrypted, and executors are not given the keys")
    assert placed(1_000_000, tmp_path).host == "spark"


async def test_one_that_must_and_cannot_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    said = placed(1, tmp_path, must=True)
    assert said.host is None
    assert "/no/such/java" in said.reason
    spark = SparkHost(Settings(), tmp_path, tmp_path, NOTHING_RUNS)
    plan = msgspec.structs.replace(plan_of(), document=DOCUMENT)
    stage = Stage(plan, VirtualClock(0), slices=[1])
    ending = await stage.keeper.run(SparkOrWorker(spark, Puppet(), must=True))
    assert ending.error is not None
    assert ending.error["code"] == NotOnSpark.code
    assert "/no/such/java" in ending.error["message"]


async def test_the_decision_stands_in_the_log_of_the_stage() -> None:
    stage = Stage(plan_of(), VirtualClock(0))
    await stage.keeper.run(stage.host)
    (started,) = await stage.events()
    assert started.payload["placement"] == {"asked": "worker", "host": "worker", "reason": "it is a test"}
    assert stage.keeper.progress().host == "worker"
