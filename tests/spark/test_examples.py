"""The examples that need Spark, run with fewer rows than they have by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.settings import Spark
from tests.e2e.cli import PROJECT_ROOT
from tests.services.postgres import Database, postgres, postgres_server
from tests.unit.runtime.plant import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.unit.runtime.plant import Plant

__all__ = ["postgres", "postgres_server"]

SETTINGS = {"spark": Spark(master="local[2]")}


async def result_of(plant: Plant, example: str, **workload: Any) -> Any:
    """What an example ends with, once its log is proven."""
    document = (PROJECT_ROOT / "examples" / f"{example}.yaml").read_text(encoding="utf-8")
    finished = await plant.run(document, workload=workload)
    assert finished.status == "COMPLETED", finished.error
    stream = Stream("default", execution_stream(finished.execution_id))
    assert (await plant.embedded.verifier.verify(stream)).ok
    return finished.result


async def test_data_quality(spark: SparkSession, tmp_path: Path) -> None:
    async with opened(tmp_path, SETTINGS) as plant:
        result = await result_of(plant, "18_data_quality", rows=20000, folder=str(tmp_path / "quality"))
    assert sorted(result["preview"], key=by_country) == by_hand(20000)
    assert [row["euros"] for row in result["preview"]] == sorted((row["euros"] for row in by_hand(20000)), reverse=True)
    files = [file["path"] for file in result["written"]["files"]]
    assert [path.name for path in (tmp_path / "quality" / "report").iterdir()] == files


def by_hand(rows: int) -> list[dict[str, Any]]:
    """The report of the example, worked out row by row."""
    found: dict[str, list[int]] = {}
    for number in range(1, rows + 1):
        cents = number * 104729 % 20000 - 100
        if number % 211 == 0 or cents <= 0:
            continue
        country = ("DE", "FR", "PT", "NO")[number % 4]
        one = found.setdefault(country, [0, 0, 0, 0])
        tax = cents * (25 if country == "NO" else 20) // 100
        for at, value in enumerate((1, cents, tax, number % 97 == 0)):
            one[at] += value
    return [
        {"country": country, "orders": n, "euros": cents // 100, "tax": tax // 100, "anonymous": anonymous}
        for country, (n, cents, tax, anonymous) in sorted(found.items())
    ]


def by_country(row: dict[str, Any]) -> str:
    return str(row["country"])


async def test_csv_to_postgres_and_again(spark: SparkSession, tmp_path: Path, postgres: Database) -> None:
    inbox = tmp_path / "inbox"
    async with opened(tmp_path, SETTINGS) as plant:
        await plant.credential("pg_main", "postgres", **postgres.credential)
        first = await result_of(plant, "19_csv_to_postgres", rows=2000, inbox=str(inbox))
        (inbox / "orders-1.csv").unlink()
        (inbox / "orders-2.csv").write_text("id,customer,amount,ordered_on\n4,ada,5000.25,2026-03-03\n")
        again = await result_of(plant, "19_csv_to_postgres", inbox=str(inbox))
    assert (first["written"], first["failed"]) == (1996, {"has_an_id": 0, "not_negative": 4, "has_a_customer": 500})
    assert [row["orders"] for row in first["customers"]] == [500, 498, 499, 499]
    assert again["written"] == 1
    assert postgres.query("SELECT customer, amount::text FROM shop_orders WHERE id = 4") == [("Ada", "5000.25")]


async def test_api_harvest_with_a_page_that_fails_at_first(spark: SparkSession, tmp_path: Path) -> None:
    with site(failing_once={"/visits-2.json"}) as (api, asked):
        async with opened(tmp_path, SETTINGS) as plant:
            result = await result_of(plant, "20_api_harvest", api=api, folder=str(tmp_path / "harvest"))
    assert result["preview"] == [
        {"day": "2026-03-01", "city": "Berlin", "visits": 2, "minutes": 34},
        {"day": "2026-03-01", "city": "Lisbon", "visits": 1, "minutes": 12},
        {"day": "2026-03-02", "city": "Lisbon", "visits": 1, "minutes": 25},
        {"day": "2026-03-02", "city": "Oslo", "visits": 1, "minutes": 51},
    ]
    assert sorted(path.name for path in (tmp_path / "harvest" / "visits").iterdir()) == [
        "day=2026-03-01", "day=2026-03-02",
    ]  # fmt: skip
    assert asked.count("/visits-2.json") == 2


@contextmanager
def site(failing_once: set[str]) -> Iterator[tuple[str, list[str]]]:
    """The files of the examples over HTTP; its address, and what it was asked for."""
    asked: list[str] = []

    class Files(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path in failing_once and asked.count(self.path) == 1:
                self.send_error(503)
            else:
                super().do_GET()

        def log_message(self, *_: Any) -> None:
            """The output of a test run is for the tests."""

    handler = partial(Files, directory=str(PROJECT_ROOT / "examples" / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        serving.join()
