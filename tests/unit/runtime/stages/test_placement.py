"""Where a stage runs, and why not on Spark."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.data.session import SessionConf
from noetl.playbook import load
from noetl.runtime.stages.placement import is_worth_it, why_no_spark, why_not_on_spark
from noetl.settings import Payloads, Settings
from tests.stagework import plan_of

LOCAL = SessionConf(master="local[2]")


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
