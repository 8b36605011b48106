"""A cursor on Spark: rows are claimed from a real queue, with a credential that comes over the stage's plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.kernel.event import Json
from noetl.ports.credentials import Credential
from noetl.settings import Settings, Spark
from tests.contracts.slot_host import ORIGIN, Ground, ground
from tests.e2e.test_cursor_loops import done_task, drain, fill
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

SETTINGS = Settings(spark=Spark(master="local[2]"))
JOBS = 23


@pytest.fixture
async def on(tmp_path: Path, our_spark: None, postgres: Database) -> AsyncIterator[Ground]:
    postgres.query("DROP TABLE IF EXISTS job; CREATE TABLE job (id int, state text DEFAULT 'pending', worth numeric)")
    fill(postgres, JOBS)
    async with ground(tmp_path, "spark", SETTINGS) as made:
        data: Json = {name: str(value) for name, value in postgres.credential.items()}
        await made.embedded.credentials.put(ORIGIN.tenant_id, Credential(name="pg_main", type="postgres", data=data))
        yield made


async def test_every_row_is_claimed_and_done_once(on: Ground, postgres: Database) -> None:
    finished = await on.run(drain(done_task(), engine="spark"))
    assert finished.status == "COMPLETED", finished.error
    assert postgres.query("SELECT state, count(*) FROM job GROUP BY 1") == [("done", JOBS)]
    assert (finished.result["count"], finished.result["stats"]["success"]) == (JOBS, JOBS)


async def test_a_credential_that_is_not_there_fails_the_claim_and_says_which(on: Ground) -> None:
    await on.embedded.credentials.remove(ORIGIN.tenant_id, "pg_main")
    finished = await on.run(drain(done_task(), engine="spark"))
    assert finished.status == "FAILED"
    assert finished.error is not None
    assert "pg_main" in finished.error["message"]
