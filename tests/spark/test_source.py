"""The noetl format in a session: events in batches and as a stream, results, outputs of stages and datasets."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from noetl.data.session import explain
from noetl.data.source import register
from noetl.kernel.event import Json, Recorded
from noetl.settings import Spark
from tests.docs.pages import ROOT
from tests.unit.runtime.plant import Plant, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

T = TypeVar("T")
PAGE = ROOT / "docs" / "how-to" / "read-from-pyspark.md"

STEPS: Json = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "kept", "path": "tests/kept"},
    "workflow": [
        {"step": "small", "tool": {"kind": "python", "code": "result = [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]"},
         "next": {"arcs": [{"step": "one"}]}},
        {"step": "one", "tool": {"kind": "python", "code": "result = {'total': 7, 'note': 'seven'}"},
         "next": {"arcs": [{"step": "large"}]}},
        {"step": "large", "tool": {"kind": "python", "code": (
            "import datetime\nimport pyarrow as pa\n"
            "result = pa.table({'n': pa.array(range(3000), pa.int32()),"
            " 'day': [datetime.date(2026, 1, 1)] * 3000, 'word': pa.array(['w'] * 3000).dictionary_encode()})")},
         "next": {"arcs": [{"step": "frames"}]}},
        {"step": "frames", "loop": {"in": "{{ large }}", "iterator": "row", "spec": {
            "mode": "fanout", "engine": "worker", "frame": {"max_rows": 1000, "process": "frame"}}},
         "tool": {"kind": "python", "code": "result = frame.table.select(['n'])"},
         "next": {"arcs": [{"step": "written"}]}},
        {"step": "written", "tool": {"kind": "spark", "code": (
            "def main(spark):\n    return spark.read.format('noetl').load('events')"
            ".filter(\"event_type = 'step.enter'\").selectExpr('node_name', 'position % 2 AS odd')"),
            "output": {"resource": "datasets/entered", "partition_by": ["odd"]}}},
    ],
}  # fmt: skip


MORE: Json = {**STEPS, "workflow": [{"step": "small", "tool": STEPS["workflow"][0]["tool"]}]}


class House:
    """An installation that has run a playbook, and what its ledger has."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.execution = 0

    def work(self, do: Callable[[Plant], Awaitable[T]]) -> T:
        async def run() -> T:
            async with opened(self.place, {"spark": Spark(master="local[2]")}) as plant:
                return await do(plant)

        return asyncio.run(run())

    def run(self, document: Json) -> None:
        self.execution = self.work(lambda plant: plant.run(document)).execution_id

    def recorded(self) -> list[Recorded]:
        return list(self.work(lambda plant: plant.embedded.ledger.read_all(limit=100_000)))


@pytest.fixture(scope="module")
def house(spark_sessions: Any, tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("house"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noetl.data.session.sessions._shared", [spark_sessions])
        made.run(STEPS)
    return made


@pytest.fixture
def reader(house: House, spark: SparkSession) -> Callable[..., DataFrame]:
    register(spark, house.home)

    def load(locator: str, schema: str | None = None, **options: Any) -> DataFrame:
        asked: DataFrameReader = spark.read.format("noetl").options(**options)
        return (asked if schema is None else asked.schema(schema)).load(locator)

    return load


Load = Callable[..., "DataFrame"]


class TestEvents:
    def test_a_batch_is_what_the_ledger_has(self, house: House, reader: Load) -> None:
        recorded = house.recorded()
        rows = reader("events", rowsPerPartition=10).orderBy("position").collect()
        assert [row.position for row in rows] == [item.position for item in recorded] == list(range(1, len(rows) + 1))
        for row, item in zip(rows, recorded, strict=True):
            event = item.event
            assert (row.event_id, row.event_type, row.envelope_checksum, row.chain_hash, row.execution_id) == (
                event.event_id, event.event_type, event.envelope_checksum, event.chain_hash, event.execution_id
            )  # fmt: skip
        assert rows[0].other is None

    def test_conditions_are_checked_by_the_ledger(self, house: House, reader: Load) -> None:
        frame = reader("events").filter(
            "event_type IN ('step.enter', 'step.exit') AND position > 3 AND execution_id = " + str(house.execution)
        )
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "Filter (" not in plan
        assert {row.event_type for row in frame.collect()} == {"step.enter", "step.exit"}
        late = reader("events", "position long, ingest_time timestamp").filter("ingest_time > current_timestamp()")
        assert late.count() == 0
        some = reader("events", types="step.enter", fromPosition=1, toPosition=20, executionId=house.execution)
        expected = [item for item in house.recorded()[:20] if item.event.event_type == "step.enter"]
        assert some.count() == len(expected) > 0

    def test_what_cannot_be_read_is_said_in_words(self, reader: Load, tmp_path: Path) -> None:
        asked: dict[str, Callable[[], object]] = {
            "there is no ledger at": lambda: reader("events", home=str(tmp_path / "none")).count(),
            "did you mean toPosition": lambda: reader("events", to_position=3),
            "after the end of the ledger": lambda: reader("events", toPosition=100_000).count(),
            "events have no column 'colour'": lambda: reader("events", "colour string").count(),
            "there is no execution 1": lambda: reader("results/1/nothing"),
        }
        for said, ask in asked.items():
            with pytest.raises(Exception) as failed:
                ask()
            message = explain(failed.value).message
            assert said in message
            assert "org.apache" not in message


class TestKept:
    def test_results_are_rows_with_their_types(self, house: House, reader: Load) -> None:
        at = f"results/{house.execution}"
        assert [tuple(row) for row in reader(f"{at}/small").orderBy("a").collect()] == [(1, "x"), (2, None)]
        assert [row.asDict() for row in reader(f"{at}/one").collect()] == [{"total": 7, "note": "seven"}]
        large = reader(f"{at}/large")
        assert large.dtypes == [("n", "int"), ("day", "date"), ("word", "string")]
        assert large.groupBy("word").sum("n").collect()[0][1] == sum(range(3000))

    def test_outputs_of_a_stage_are_read_frame_by_frame(self, house: House, reader: Load) -> None:
        frames = reader(f"results/{house.execution}/frames")
        assert frames.rdd.getNumPartitions() == 3
        assert (frames.columns, frames.agg({"n": "sum"}).collect()[0][0]) == (["n"], sum(range(3000)))
        assert "_frame_id" in reader(f"results/{house.execution}/frames", lineage=True).columns

    def test_a_task_of_ours_reads_the_same_and_its_dataset_is_read(self, house: House, reader: Load) -> None:
        for name in (
            "datasets/entered",
            "noetl://default/default/datasets/entered",
            f"results/{house.execution}/written",
        ):
            frame = reader(name)
            assert frame.dtypes == [("node_name", "string"), ("odd", "int")]
            assert {row.node_name for row in frame.collect()} >= {"small", "one", "large", "frames"}


class TestFollowing:
    def test_a_stream_that_is_killed_and_started_again_has_every_position_once(
        self, house: House, spark: SparkSession, tmp_path: Path
    ) -> None:
        register(spark, house.home)
        checkpoint, target = str(tmp_path / "checkpoint"), str(tmp_path / "lake")

        def follow(write: Callable[[DataFrame, int], None]) -> Any:
            asked = spark.readStream.format("noetl").option("maxPositionsPerTrigger", 15).load("events")
            writing = asked.select("position", "event_type").writeStream.foreachBatch(write)
            return writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

        def written(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(f"{target}/batch={number}")

        def dying(batch: DataFrame, number: int) -> None:
            written(batch, number)
            if number == 1:
                raise RuntimeError("killed after writing")

        with pytest.raises(Exception, match="killed after writing"):
            follow(dying).awaitTermination()
        house.run(MORE)
        follow(written).awaitTermination()
        head = len(house.recorded())
        found = [row.position for row in spark.read.parquet(target).orderBy("position").collect()]
        assert found == list(range(1, head + 1))

        old = tmp_path / "old"
        shutil.copytree(house.home, old)
        house.run(MORE)
        follow(written).awaitTermination()
        register(spark, old)
        with pytest.raises(Exception, match=f"ends at position {head}, and this stream has read up to"):
            follow(written).awaitTermination()


def test_the_page_is_true(
    house: House,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NOETL_HOME", str(house.home))
    known: dict[str, Any] = {"spark": spark}
    for code in re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(code.replace('"lake', f'"{tmp_path}/lake'), known)
    assert "|step.enter" in capsys.readouterr().out.replace(" ", "")
    assert spark.read.parquet(f"{tmp_path}/lake").count() == len(house.recorded())
