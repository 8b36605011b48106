"""The session of this process: shared, isolated where it can be, refused where it cannot, and cancelled at once."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from noetl.data.session import (
    SessionConf,
    SettingsDiffer,
    SparkSessions,
    SparkUnavailable,
    explain,
    run_job,
    running,
)
from noetl.data.session.executors import check_executors
from tests.services.emulator import wait_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


class TestSharing:
    async def test_two_runs_share_one_spark(self, spark_sessions: SparkSessions, spark_conf: SessionConf) -> None:
        first, second = await asyncio.gather(spark_sessions.get(spark_conf), spark_sessions.get(spark_conf))

        assert first.sparkContext.applicationId == second.sparkContext.applicationId
        assert first is not second

    async def test_each_has_views_and_sql_settings_of_its_own(
        self, spark_sessions: SparkSessions, spark_conf: SessionConf
    ) -> None:
        theirs = SessionConf(master=spark_conf.master, conf={"spark.sql.shuffle.partitions": "7"})
        first, second = await spark_sessions.get(spark_conf), await spark_sessions.get(theirs)
        first.range(3).createOrReplaceTempView("orders")

        assert second.catalog.tableExists("orders") is False
        assert [each.conf.get("spark.sql.shuffle.partitions") for each in (first, second)] == ["4", "7"]

    @pytest.mark.parametrize(
        ("master", "conf", "message"),
        [
            ("local[2]", {"spark.driver.memory": "3g"}, "has spark.driver.memory = 1g, .* = 3g is asked for"),
            ("local[2]", {"spark.executor.instances": "9"}, "was started without spark.executor.instances"),
            ("local[1]", {}, r"has spark.master = local\[2\], .* spark.master = local\[1\] is asked for"),
        ],
    )
    async def test_what_cannot_be_shared_is_refused_with_the_reason(
        self, spark_sessions: SparkSessions, master: str, conf: dict[str, str], message: str
    ) -> None:
        with pytest.raises(SettingsDiffer, match=message) as refused:
            await spark_sessions.get(SessionConf(master=master, conf=conf))

        assert "in a process of its own" in (refused.value.hint or "")

    async def test_it_is_described(self, spark_sessions: SparkSessions, spark: SparkSession) -> None:
        info = spark_sessions.info()

        assert info is not None
        assert (info.kind, info.is_classic, info.master, info.spark) == ("own", True, "local[2]", spark.version)
        assert info.ui is not None
        assert info.ui.startswith("http://127.0.0.1:")

    def test_what_java_itself_runs_in_python_is_run_by_this_interpreter(self, spark: SparkSession) -> None:
        java: Any = spark.sparkContext._jvm  # how it looks for data sources, among others

        assert java.System.getenv("PYSPARK_PYTHON") == sys.executable

    def test_the_defaults_are_ours(self, spark: SparkSession) -> None:
        names = ("spark.sql.session.timeZone", "spark.sql.adaptive.enabled", "spark.ui.showConsoleProgress")

        assert [spark.conf.get(name) for name in names] == ["UTC", "true", "false"]


class TestWorkers:
    def test_they_run_this_interpreter(self, spark: SparkSession) -> None:
        def tell(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import sys

            import pyarrow as pa

            yield pa.record_batch({"python": [sys.executable]})

        rows = spark.range(1, numPartitions=1).mapInArrow(tell, "python string").collect()

        assert [row.python for row in rows] == [sys.executable]

    async def test_they_import_modules_of_the_user_as_they_are_now(
        self, spark_sessions: SparkSessions, spark_conf: SessionConf, tmp_path: Path
    ) -> None:
        def answer(_: Any) -> list[int]:
            import users_module  # type: ignore[import-not-found]

            return [users_module.ANSWER]

        found = []
        for value in (41, 42):
            (tmp_path / "users_module.py").write_text(f"ANSWER = {value}\n")
            session = await spark_sessions.get(spark_conf, modules=[tmp_path])
            with running(session, "answer"):
                found += session.sparkContext.parallelize([0], 1).mapPartitions(answer).collect()

        assert found == [41, 42]


class TestExecutors:
    def test_those_that_can_run_our_tasks_pass(self, spark: SparkSession) -> None:
        check_executors(spark, 60)

    def test_another_version_of_python_is_named(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")
        here = f"{sys.version_info.major}.{sys.version_info.minor}"

        with pytest.raises(SparkUnavailable, match=rf"executors run Python {here}") as refused:
            check_executors(spark, 60)

        assert "spark.pyspark.python" in (refused.value.hint or "")

    def test_a_python_that_is_not_there_is_named(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")

        with pytest.raises(SparkUnavailable, match="executors cannot run '/no/such/python'"):
            check_executors(spark, 60)

    def test_a_missing_package_is_named(self, spark: SparkSession) -> None:
        with pytest.raises(SparkUnavailable, match="has no nothing_like_it for its Python"):
            check_executors(spark, 60, needed=("pyarrow", "nothing_like_it"))

    def test_nobody_waits_for_ever(self, spark: SparkSession) -> None:
        """All cores are taken, as in a cluster that has none left for us."""
        release = _occupy(spark)
        try:
            with pytest.raises(SparkUnavailable, match=r"no executor of .* took work within 500ms"):
                check_executors(spark, 0.5)
        finally:
            release()


class TestCancelling:
    async def test_a_cancelled_job_stops_at_once(self, spark: SparkSession, tmp_path: Path) -> None:
        work = asyncio.create_task(run_job(spark, "slow", lambda: _sleepers(spark, tmp_path)))
        await _begun(tmp_path)
        began = time.monotonic()
        work.cancel()

        with pytest.raises(asyncio.CancelledError):
            await work

        assert time.monotonic() - began < 30  # it would sleep for an hour
        assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []

    async def test_other_jobs_go_on(self, spark: SparkSession, tmp_path: Path) -> None:
        doomed = asyncio.create_task(run_job(spark, "doomed", lambda: _sleepers(spark, tmp_path, partitions=1)))
        await _begun(tmp_path)
        other = asyncio.create_task(
            run_job(spark, "other", lambda: spark.range(1000).mapInArrow(same, "id long").count())
        )
        doomed.cancel()

        assert await other == 1000

    def test_what_is_cancelled_before_it_begins_does_not_run(self, spark: SparkSession) -> None:
        with running(spark, "early") as job:
            job.cancel()

            with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"):
                spark.range(10).mapInArrow(same, "id long").count()

    def test_a_thread_is_as_before_after_the_block(self, spark: SparkSession) -> None:
        with running(spark, "one") as job:
            pass
        job.cancel()

        assert spark.range(10).count() == 10
        assert list(spark.sparkContext.getJobTags()) == []

    async def test_an_error_reaches_the_caller(self, spark: SparkSession) -> None:
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            await run_job(spark, "wrong", lambda: spark.sql("SELECT * FROM nowhere"))


class TestExplaining:
    def test_an_error_of_user_code_keeps_its_traceback(self, spark: SparkSession) -> None:
        def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    raise ValueError(f"{batch.num_rows} rows are bad")
                yield batch

        message, detail = _failure(lambda: spark.range(10).repartition(1).mapInArrow(score, "id long").count())

        assert message.startswith("Traceback (most recent call last):\n")
        assert f'File "{__file__}"' in message
        assert message.endswith("ValueError: 10 rows are bad")
        assert "site-packages/pyspark" not in message
        assert "org.apache.spark" in detail
        assert "org.apache.spark" not in message

    def test_an_error_in_a_udf_keeps_its_traceback(self, spark: SparkSession) -> None:
        from pyspark.sql.functions import udf

        broken = udf(lambda value: 1 // (value - value), "long")
        message, _ = _failure(lambda: spark.range(3).select(broken("id")).collect())

        assert message.endswith("ZeroDivisionError: integer division or modulo by zero")

    @pytest.mark.parametrize(
        ("sql", "said"),
        [
            (
                "SELECT nope FROM (SELECT 1 AS yes)",
                "`nope` cannot be resolved. Did you mean one of the following? [`yes`]",
            ),
            ("SELECT * FROM nowhere", "The table or view `nowhere` cannot be found"),
            ("SELEC 1", "Syntax error at or near 'SELEC'"),
            ("SELECT CAST('x' AS INT)", 'The value \'x\' of the type "STRING" cannot be cast to "INT"'),
        ],
    )
    def test_an_error_of_sql_is_told_without_java(self, spark: SparkSession, sql: str, said: str) -> None:
        message, detail = _failure(lambda: spark.sql(sql).collect())

        assert said in message
        for noise in ("SQLSTATE", "\tat ", "Project ["):
            assert noise not in message
        assert "\tat org.apache.spark" in detail

    def test_a_missing_file_is_named(self, spark: SparkSession) -> None:
        message, _ = _failure(lambda: spark.read.parquet("/no/such/orders.parquet"))

        assert message == "[PATH_NOT_FOUND] Path does not exist: file:/no/such/orders.parquet."

    def test_an_unreadable_file_is_named_with_the_cause(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "orders.parquet").write_bytes(b"not what it says" * 4)
        message, _ = _failure(lambda: spark.read.schema("id long").parquet(str(tmp_path)).collect())

        assert "orders.parquet" in message
        assert "is not a Parquet file" in message

    def test_a_worker_that_died_is_told_in_one_sentence(self, spark: SparkSession) -> None:
        def die(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import os

            os._exit(9)

        message, _ = _failure(lambda: spark.range(1).mapInArrow(die, "id long").collect())

        assert message.startswith("Python worker exited unexpectedly (crashed)")

    def test_python_code_on_this_side_keeps_its_traceback(self) -> None:
        def code() -> None:
            raise KeyError("customer_id")

        message, _ = _failure(code)

        assert message.endswith("KeyError: 'customer_id'")
        assert ", in code" in message

    def test_nothing_of_it_is_printed(self, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
        _failure(lambda: spark.sql("SELECT id / 0 FROM range(3)").collect())

        assert capfd.readouterr() == ("", "")


def _failure(work: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(Exception) as raised:
        work()
    return explain(raised.value)


def _sleepers(spark: SparkSession, began: Path, partitions: int = 2) -> int:
    place = str(began)

    def sleep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pathlib
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        pathlib.Path(place, f"{context.partitionId()}").touch()
        time.sleep(3600)
        yield from batches

    return spark.range(10, numPartitions=partitions).mapInArrow(sleep, "id long").count()


async def _begun(place: Path) -> None:
    await asyncio.to_thread(_await_files, place, 1)


def _await_files(place: Path, count: int) -> None:
    wait_for(lambda: len(list(place.iterdir())) >= count, "no task has begun")


def _occupy(spark: SparkSession) -> Callable[[], None]:
    """Keep both cores busy until the returned function is called."""
    import tempfile
    import threading

    place = Path(tempfile.mkdtemp())
    begun: list[Any] = []

    def work() -> None:
        with running(spark, "occupying") as job:
            begun.append(job)
            with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"):
                _sleepers(spark, place)

    thread = threading.Thread(target=work)
    thread.start()
    _await_files(place, 2)

    def release() -> None:
        begun[0].cancel()
        thread.join()

    return release
