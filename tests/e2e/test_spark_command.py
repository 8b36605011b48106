"""`noetl spark` where there is no session to keep; with one it is tested in tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_without_a_session_there_is_nothing_to_stop(home: Home) -> None:
    status = home.run("spark", "status", cwd=home.path.parent)

    assert (status.code, status.stderr) == (3, "there is no warm session\n")
    assert home.json("spark", "stop") == {"stopped": False, "pid": None}
    assert not home.path.exists()


def test_without_java_the_place_and_the_package_are_named(home: Home) -> None:
    answer = home.run("spark", "start", env={"JAVA_HOME": "/no/such/java"})

    assert answer.code == 3
    assert "JAVA_HOME is /no/such/java, which has no bin/java" in answer.stderr
    assert "openjdk-17-jre-headless" in answer.stderr


def test_a_setting_that_is_none_is_refused_where_it_stands(home: Home) -> None:
    answer = home.run("spark", "start", env={"NOETL_SPARK__CONF": "sql.shuffle.partitions=8"})

    assert answer.code == 2
    assert "spark.conf: 'sql.shuffle.partitions' is not a setting of Spark" in answer.stderr
    assert "such as spark.sql.shuffle.partitions" in answer.stderr


def test_a_connect_server_is_not_kept_warm(home: Home) -> None:
    answer = home.run("spark", "start", env={"NOETL_SPARK__REMOTE": "sc://spark.example:15002"})

    assert answer.code == 2
    assert "a Spark Connect server is warm by itself" in answer.stderr
