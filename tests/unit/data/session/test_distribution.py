"""PySpark is found without importing it, or it is said how to install it."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from noetl.data.session import distribution
from noetl.data.session.refusals import SparkUnavailable


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)

    with pytest.raises(SparkUnavailable) as refused:
        distribution.need_spark()

    assert str(refused.value) == 'data stages need Spark, and pyspark is not installed (pip install "noetl[spark]")'


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["pandas"], 'data stages need Spark, and pandas is not installed (pip install "noetl[spark]")'),
        (["grpc", "google.rpc"], "spark.remote needs Spark Connect, and grpc, google.rpc are not installed "
                                 '(pip install "noetl[spark-connect]")'),
    ],
)  # fmt: skip
def test_without_what_it_needs_that_is_named(monkeypatch: pytest.MonkeyPatch, missing: list[str], message: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.3.0")
    monkeypatch.setattr(distribution, "_is_there", lambda name: name not in missing)

    with pytest.raises(SparkUnavailable) as refused:
        distribution.need_connect()

    assert str(refused.value) == message


def test_a_wrong_spark_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    with pytest.raises(SparkUnavailable, match=f"SPARK_HOME is {tmp_path}, which has no bin/spark-submit"):
        distribution.spark_home()


def test_another_spark_may_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    assert distribution.spark_home() == tmp_path
