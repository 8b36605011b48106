"""What a session of our own starts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.session.conf import SessionConf
from noetl.data.session.defaults import driver_memory, launch_settings, machine_memory, properties, stays_here

HERE, LOGGING, SCRATCH = Path("/home/spark"), Path("/home/my logs/log4j2.properties"), Path("/scratch")


def settings(conf: SessionConf) -> dict[str, str]:
    return launch_settings(conf, HERE, LOGGING, SCRATCH)


def test_a_local_session_stays_on_loopback_and_in_the_home() -> None:
    found = settings(SessionConf(master="local[2]"))

    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.local.dir"] == "/scratch"
    assert found["spark.sql.warehouse.dir"] == "/home/spark/warehouse"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.ui.enabled"] == "true"


def test_a_cluster_chooses_its_own_places() -> None:
    found = settings(SessionConf(master="spark://cluster:7077", ui=False))

    assert not {"spark.driver.host", "spark.local.dir", "spark.sql.warehouse.dir", "spark.driver.memory"} & set(found)
    assert found["spark.ui.enabled"] == "false"


def test_what_somebody_has_chosen_stands() -> None:
    chosen = {"spark.driver.memory": "3g", "spark.sql.session.timeZone": "Europe/Berlin", "spark.ui.port": "4040"}

    found = settings(SessionConf(conf=chosen))

    assert chosen.items() <= found.items()


def test_logs_go_to_the_file_unless_somebody_has_other_plans() -> None:
    ours = settings(SessionConf(conf={"spark.driver.extraJavaOptions": "-Dx=y"}))
    theirs = settings(SessionConf(conf={"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine"}))

    assert ours["spark.driver.extraJavaOptions"] == (
        '-Dderby.system.home=/scratch -Dlog4j2.configurationFile="/home/my logs/log4j2.properties" -Dx=y'
    )
    assert theirs["spark.driver.extraJavaOptions"] == ("-Dderby.system.home=/scratch -Dlog4j2.configurationFile=mine")


@pytest.mark.parametrize(
    ("master", "here"),
    [("local[*]", True), ("local-cluster[2,1,512]", True), ("spark://127.0.0.1:7077", True),
     ("spark://localhost:7077", True), ("spark://localhost.example:7077", False), ("spark://cluster:7077", False),
     ("yarn", False), ("k8s://https://127.0.0.1:6443", False)],
)  # fmt: skip
def test_only_what_stays_on_this_machine_listens_on_loopback_only(master: str, here: bool) -> None:
    assert stays_here(master) is here


def test_memory_is_a_quarter_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (2, 16, 256):
        monkeypatch.setattr("noetl.data.session.defaults.machine_memory", lambda size=size: size << 30)
        found.append(driver_memory() >> 30)

    assert found == [1, 4, 8]


def test_a_container_may_have_less_than_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "limit").write_text("123456789\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(
        "noetl.data.session.defaults._CGROUP_LIMITS",
        (str(tmp_path / "none"), str(tmp_path / "limit"), str(tmp_path / "missing")),
    )

    assert machine_memory() == 123456789


def test_settings_are_written_as_java_reads_them() -> None:
    text = properties({"spark.b": "C:\\x\ny", "spark.a b": " padded", "spark.c": "a=b # c"})

    assert text == "spark.a\\ b=\\ padded\nspark.b=C:\\\\x\\ny\nspark.c=a=b # c\n"
