"""Starting Java, with a program in its place that fails in all the ways there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.session.java import Java
from noetl.data.session.jvm import Jvm
from noetl.data.session.refusals import SparkLost, SparkUnavailable
from tests.services.emulator import wait_for


def launch(place: Path, script: str, *, seconds: float = 20.0) -> Jvm:
    (place / "bin").mkdir()
    submit = place / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    return Jvm.launch(
        Java(place, "17"), place, place / "spark.properties", place / "spark.out", variables={}, seconds=seconds
    )


WORKS = r"""
printf '\000\000\060\071\000\000\000\003key' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat > /dev/null
"""


def test_it_tells_where_it_takes_calls_and_ends_when_it_is_let_go(tmp_path: Path) -> None:
    jvm = launch(tmp_path, WORKS)

    assert (jvm.gateway.port, jvm.gateway.secret) == (12345, "key")
    assert jvm.is_alive()
    assert not (tmp_path / "gateway").exists()  # the secret does not stay on the disk
    jvm.stop()
    assert not jvm.is_alive()


def test_one_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.data.session.jvm._END_SECONDS", 0.05)
    jvm = launch(tmp_path, WORKS + "\nexec sleep 600")

    jvm.stop()

    assert not jvm.is_alive()


def test_one_that_is_killed_while_it_starts_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SparkLost, match="signal 9"):
        launch(tmp_path, "kill -9 $$")


def test_what_it_said_is_told(tmp_path: Path) -> None:
    (tmp_path / "spark.out").write_text("of an earlier one\n")

    with pytest.raises(SparkUnavailable) as refused:
        launch(tmp_path, "echo 'WARNING: Using incubator modules: x'; echo 'Error: no master'; echo '\tat x.y'; exit 1")

    assert refused.value.message == "Spark did not start: Error: no master"
    assert refused.value.hint == f"see {tmp_path / 'spark.out'}"


def test_one_that_says_nothing_is_told_by_its_code(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="Spark did not start: Java ended with code 3"):
        launch(tmp_path, "exit 3")


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="Spark did not start within 100ms") as refused:
        launch(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600", seconds=0.1)

    assert "raise spark.start" in (refused.value.hint or "")
    wait_for(lambda: not (tmp_path / "pid").exists() or _is_gone(tmp_path), "it goes on")


def test_what_is_meant_for_noetl_alone_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_WALLET__KEK", "a key")
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")

    launch(tmp_path, f"env > {tmp_path}/env\n{WORKS}").stop()

    seen = (tmp_path / "env").read_text()
    assert "a key" not in seen
    assert "SPARK_REMOTE" not in seen
    assert "HADOOP_CONF_DIR=/etc/hadoop" in seen


def _is_gone(place: Path) -> bool:
    text = (place / "pid").read_text().strip()
    return not text or not Path(f"/proc/{text}").exists()
