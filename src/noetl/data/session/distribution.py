"""The Spark that PySpark brings: where it is, and what to install when it is not there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path

from noetl.data.session.refusals import SparkUnavailable

__all__ = ["need_connect", "need_spark", "spark_home", "spark_version"]


def spark_version() -> str | None:
    """The release of PySpark that is installed, without importing it; None if there is none."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def need_spark() -> str:
    """The release of PySpark. Raises SparkUnavailable if it, or what it needs to run Python, is missing."""
    version = spark_version()
    missing = ["pyspark"] if version is None else _missing("pandas", "pyarrow")
    if version is None or missing:
        raise SparkUnavailable(
            f"data stages need Spark, and {_listed(missing)} not installed", hint='pip install "noetl[spark]"'
        )
    return version


def need_connect() -> str:
    """The release of PySpark, if it can talk to a Spark Connect server. Raises SparkUnavailable otherwise."""
    version = need_spark()
    if missing := _missing("grpc", "grpc_status", "google.rpc", "zstandard"):
        raise SparkUnavailable(
            f"spark.remote needs Spark Connect, and {_listed(missing)} not installed",
            hint='pip install "noetl[spark-connect]"',
        )
    return version


def spark_home() -> Path:
    """The directory with Spark's jars and programs: SPARK_HOME, else the one inside the package."""
    if chosen := os.environ.get("SPARK_HOME"):
        home = Path(chosen)
        if not (home / "bin" / "spark-submit").is_file():
            raise SparkUnavailable(
                f"SPARK_HOME is {chosen}, which has no bin/spark-submit",
                hint="correct it, or unset it to use PySpark's",
            )
        return home
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "need_spark comes first"
    assert found.origin is not None, "pyspark is a package with a file"
    return Path(found.origin).parent


def _missing(*modules: str) -> list[str]:
    return [name for name in modules if not _is_there(name)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


def _listed(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
