"""Executions leave a ledger in Postgres, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.test_postgres import PostgresHome
from tests.e2e.cli import ORDERS_LOG
from tests.services import postgres
from tests.services.postgres_server import Server

CHILD = "286814896631345155"
CORPUS = ORDERS_LOG.parents[2] / "tests" / "golden" / "corpus"
TENANT = ("--tenant", "acme")
postgres_server = postgres.postgres_server


@pytest.fixture
def home(tmp_path: Path, postgres_server: Server, worker_id: str) -> Iterator[PostgresHome]:
    control = postgres_server.database("postgres")
    name = f"{worker_id}_retention"
    control.query(f"CREATE DATABASE {name} TEMPLATE template0")
    found = PostgresHome(tmp_path / "home", postgres_server.database(name).dsn)
    found.json("db", "migrate")
    yield found
    control.query(f"DROP DATABASE {name} WITH (FORCE)")


def test_they_are_read_rebuilt_and_restored_from_their_archives(home: PostgresHome) -> None:
    for name in ("calls_parent", "calls_child"):
        home.json("import", CORPUS / f"{name}.jsonl")
    home.json("archive", "--all", *TENANT)
    assert home.json("retention", "--apply", *TENANT)["gone"]["executions"] == 2
    assert home.json("rebuild", "--from-archive", "all")["wrong_rows"] == 0
    verified = home.json("verify", CHILD, *TENANT)
    assert (verified["ok"], verified["events"]) == (True, 18)
    assert home.run("restore", verified["archive"]).code == 0
    sizes = home.json("db", "vacuum", "--full")
    assert sizes["bytes_after"] <= sizes["bytes_before"]
    whole = home.json("verify", "--all")
    assert (whole["ok"], whole["ledger"]["archived"]) == (True, 0)
