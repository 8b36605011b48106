"""A process that is killed after a spark task has written, and before that is recorded: what is there, is once."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from noetl.runtime.driver import Origin
from noetl.runtime.embedded.runner import open_runner
from noetl.settings import Spark
from tests.services.postgres import Database, postgres, postgres_server
from tests.spark.commands import Commands
from tests.unit.runtime.plant import opened

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.timeout(400)  # two JVMs, on a machine that may be busy
KILL = """
import os, pathlib, signal
if not pathlib.Path("killed").exists():
    pathlib.Path("killed").touch()
    os.kill(os.getppid(), signal.SIGKILL)
result = 1
"""
ROWS = {"kind": "spark", "sql": "SELECT id, id * 10 AS ten FROM range(100)", "partitions": 2}


def tasks() -> list[dict[str, Any]]:
    table = {"table": "public.rows", "mode": "append", "effect_table": "noetl_effects"}
    return [
        {**ROWS, "name": "added", "output": {"path": "added", "mode": "append"}},
        {**ROWS, "name": "put", "output": {"path": "put", "mode": "overwrite", "partition_by": ["id"]},
         "sql": "SELECT id, id * 10 AS ten FROM range(3)"},
        {**ROWS, "name": "named", "output": {"resource": "datasets/named", "mode": "append", "format": "orc"}},
        {**ROWS, "name": "copied", "output": {**table, "format": "postgres"}, "auth": "shop"},
        {"name": "kill", "kind": "python", "code": KILL},
    ]  # fmt: skip


def parts(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


async def test_it_is_run_again_and_everything_is_there_once(
    our_spark: None, postgres: Database, tmp_path: Path
) -> None:
    async with opened(tmp_path) as plant:
        await plant.credential("shop", "postgres", **postgres.credential)
    with Commands(tmp_path, "local[2]") as noetl:
        started = noetl.start("run", noetl.write("writing", {"step": "write", "tool": tasks()}))
        said, _ = started.communicate(timeout=300)
    assert started.returncode == -9, said
    before = parts(tmp_path / "added"), parts(tmp_path / "put")
    assert all(before)
    with closing(sqlite3.connect(tmp_path / "home" / "ledger.db")) as log:
        ((execution,),) = log.execute("SELECT DISTINCT execution_id FROM event WHERE event_type LIKE 'playbook.%'")
    async with (
        opened(tmp_path, {"spark": Spark(master="local[2]")}) as plant,
        open_runner(plant.embedded, Origin(), directory=tmp_path, scratch=tmp_path / "scratch", slots=4) as runner,
    ):
        await runner.resume(int(execution))
        finished = await runner.wait(int(execution))
    assert finished.status == "COMPLETED", finished.error

    assert (parts(tmp_path / "added"), parts(tmp_path / "put")) == before
    assert pq.read_table(tmp_path / "added").sort_by("id")["ten"].to_pylist() == [10 * id_ for id_ in range(100)]
    for file in finished.result["results"]["added"]["written"]["files"]:
        content = (tmp_path / "added" / file["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
    named = tmp_path / "home" / "datasets" / "default" / "default" / "datasets" / "named"
    assert len(parts(named)) == finished.result["results"]["named"]["written"]["file_count"] == 2
    assert postgres.query("SELECT count(*), sum(ten) FROM rows") == [(100, 49500)]
    assert finished.result["results"]["copied"]["written"]["skipped"] is True
    assert not [name for name in parts(tmp_path) if name.startswith(".")]


KILL_SPARK = """
import os, pathlib, signal

def main(spark):
    if not pathlib.Path("lost").exists():
        pathlib.Path("lost").touch()
        os.kill(spark._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
    return spark.range(7)
"""


def test_a_task_whose_spark_is_killed_is_run_again(our_spark: None, tmp_path: Path) -> None:
    with Commands(tmp_path, "local[2]") as noetl:
        book = noetl.write("losing", {"step": "lose", "tool": {"kind": "spark", "code": KILL_SPARK}})
        document = noetl.run("run", book)
    assert document["status"] == "COMPLETED", document["error"]
    assert document["result"]["rows"] == 7
    with closing(sqlite3.connect(tmp_path / "home" / "ledger.db")) as log:
        ((issued,),) = log.execute("SELECT count(*) FROM event WHERE event_type = 'command.issued'")
    assert issued == 1
