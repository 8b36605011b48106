"""The API and a Postgres, once for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.pft.drain import Plan
from benchmarks.pft.facilities import facilities
from benchmarks.pft.reference_a import Crew, processes
from benchmarks.pft.services import Service, api
from benchmarks.pft.totals import Size
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["SIZE", "postgres", "postgres_server"]

SIZE = Size(2, 6)


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    with api() as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """Without a limit, and with nothing counted yet."""
    running.reset(0)
    return running


@pytest.fixture(scope="module")
def crew(running: Service, postgres: Database) -> Iterator[Crew]:
    """Reference A, with two processes."""
    with processes(Plan(api=running.url, dsn=postgres.dsn, connections=3), 2) as crew:
        yield crew


@pytest.fixture(scope="module")
def finished(crew: Crew, running: Service, postgres: Database) -> str:
    """A run that has found everything."""
    running.reset(0)
    facilities(postgres.dsn, "finished", SIZE, crew.drain)
    return "finished"


@pytest.fixture
def copied(finished: str, postgres: Database) -> Iterator[str]:
    """A copy of it that a test may damage."""
    for table in ("pft_queue", "pft_record", "pft_detail"):
        columns = ", ".join(str(row[0]) for row in postgres.query(
            f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' AND column_name <> 'run'"
        ))  # fmt: skip
        postgres.query(
            f"INSERT INTO {table} (run, {columns}) SELECT 'copy', {columns} FROM {table} WHERE run = 'finished'"
        )
    yield "copy"
    for table in ("pft_queue", "pft_record", "pft_detail"):
        postgres.query(f"DELETE FROM {table} WHERE run = 'copy'")
