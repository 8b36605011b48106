"""Reference A does all the work, however often it is interrupted, and stops where a record is missing."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.pft.check import check
from benchmarks.pft.drain import Plan
from benchmarks.pft.facilities import Incomplete, facilities
from benchmarks.pft.reference_a import Crew, processes
from benchmarks.pft.services import Service
from benchmarks.pft.totals import DETAILS, DOMAINS, Size, expected
from tests.services.postgres import Database
from tests.unit.benchmarks.pft.conftest import SIZE

REQUESTS = expected(range(1, 13)).requests


def test_reference_a_finds_every_record_with_one_request_each(crew: Crew, service: Service, postgres: Database) -> None:
    done = facilities(postgres.dsn, "once", SIZE, crew.drain)

    verdict = check(postgres.dsn, "once", SIZE)
    stats = service.stats()
    assert verdict.right
    assert verdict.totals == expected(range(1, 13)).counts
    assert stats["requests"] == stats["distinct_records"] == stats["distinct_keys"] == done.requests == REQUESTS
    assert done.rows == 12 * len(DOMAINS) + verdict.totals[DETAILS]


def test_a_limit_slows_it_down_and_loses_nothing(crew: Crew, service: Service, postgres: Database) -> None:
    service.reset(40)

    done = facilities(postgres.dsn, "limited", Size(1, 2), crew.drain)

    assert check(postgres.dsn, "limited", Size(1, 2)).right
    assert done.refused == service.stats()["refused"] > 0


def test_a_second_run_of_the_same_name_finds_nothing_left_to_do(crew: Crew, postgres: Database, finished: str) -> None:
    done = facilities(postgres.dsn, finished, SIZE, crew.drain)

    assert (done.requests, done.frames) == (0, 0)


def test_claims_of_a_lost_process_are_taken_up_again(crew: Crew, postgres: Database, copied: str) -> None:
    postgres.query(
        "UPDATE pft_queue SET state = 'claimed', claimed_at = now() - interval '1 hour' "
        "WHERE run = 'copy' AND kind = 'mds_details' AND patient = 4"
    )
    postgres.query("DELETE FROM pft_detail WHERE run = 'copy' AND patient = 4")

    facilities(postgres.dsn, copied, SIZE, crew.drain, reclaim_seconds=0.01)

    assert check(postgres.dsn, copied, SIZE).right


def test_a_process_that_is_killed_is_replaced_and_nothing_is_lost(
    crew: Crew, service: Service, postgres: Database
) -> None:
    size = Size(1, 4)
    service.reset(30)  # slow enough that both are at work for some seconds
    with ThreadPoolExecutor(1) as beside:
        working = beside.submit(facilities, postgres.dsn, "killed", size, crew.drain, 0.2)
        for asked in (10, 40):
            _await_records(service, asked)
            os.kill(crew.pids()[0], signal.SIGKILL)
        service.reset(0)
        working.result()

    assert check(postgres.dsn, "killed", size).right
    crew.drain("killed", 1, [])  # one that was killed when it had nothing more to do is replaced by now
    assert len(crew.pids()) == 2


def test_a_process_that_fails_is_not_started_over_and_over(
    running: Service, postgres: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(api=f"{running.url}/nowhere", dsn=postgres.dsn, connections=1)

    with processes(plan, 1) as lost, pytest.raises(RuntimeError, match="a process of reference A has ended with 1"):
        facilities(postgres.dsn, "failed", Size(1, 1), lost.drain)

    assert "there is no /nowhere/api/v1/patient/" in capfd.readouterr().err


def test_a_facility_that_misses_a_record_ends_the_run(crew: Crew, postgres: Database, copied: str) -> None:
    postgres.query("DELETE FROM pft_record WHERE run = 'copy' AND id = 'MEDI-3-p1-i0'")

    with pytest.raises(Incomplete, match=r"facility 1 is not complete: medications: \d+ of \d+$"):
        facilities(postgres.dsn, copied, SIZE, crew.drain)


def _await_records(service: Service, count: int) -> None:
    deadline = time.monotonic() + 60
    while service.stats()["distinct_records"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
