"""One Spark for all tests of a process, and for each test a session of its own on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from noetl.data.session import SessionConf, SparkSessions, SparkUnavailable
from noetl.data.session.distribution import need_connect
from noetl.data.session.java import find_java
from tests.services.emulator import NOT_AVAILABLE
from tests.services.quick_java import quick_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = SessionConf(master="local[2]", conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"})

LONGEST = (
    "test_lifetimes.py", "test_pages.py", "test_slot_cluster.py", "test_slot_recovery.py", "test_lake_killed.py",
    "test_tool_recovery.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first: where files run beside each other, nobody is to wait for one that came last."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def spark_is_there() -> None:
    """Without Java there is nothing to test with: the run's summary names it."""
    try:
        find_java()
        need_connect()
    except SparkUnavailable as error:
        pytest.skip(f"{NOT_AVAILABLE}: spark: {error}")


@pytest.fixture(scope="session", autouse=True)
def quick_jvms(spark_is_there: None) -> Iterator[None]:
    """Every Spark that is started from here starts quickly, also those that the pages of the documentation start."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_java().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark_conf() -> SessionConf:
    """What the shared session was started with."""
    return CONF


@pytest.fixture(scope="session")
def spark_sessions(quick_jvms: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSessions]:
    """The sessions of this process; they run on two cores."""
    sessions = SparkSessions(tmp_path_factory.mktemp("spark-home"), attach=False)
    sessions.prepare(CONF)
    yield sessions
    sessions.close()


@pytest.fixture
def our_spark(spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared sessions of this process are those of the suite."""
    monkeypatch.setattr("noetl.data.session.sessions._shared", [spark_sessions])


@pytest.fixture
def spark(spark_sessions: SparkSessions) -> SparkSession:
    """A session with its own temporary views and SQL settings."""
    return asyncio.run(spark_sessions.get(CONF))
