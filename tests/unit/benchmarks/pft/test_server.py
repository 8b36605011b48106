"""The API of the workload, asked over its socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from benchmarks.pft.server import Limiter
from benchmarks.pft.services import Service
from benchmarks.pft.totals import mds_ids, mds_value, pages, record_id, value

PATIENT = 3
ASSESSMENT = mds_ids(PATIENT, 1)[0]


@pytest.fixture
async def http(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(service.url) as session:
        yield session


async def ask(http: aiohttp.ClientSession, target: str, **headers: str) -> tuple[int, Any]:
    async with http.get(target, headers=headers) as response:
        return response.status, await response.json()


async def test_a_page_holds_one_record_however_many_are_asked_for(http: aiohttp.ClientSession) -> None:
    total = pages(PATIENT, "assessments")

    status, body = await ask(http, f"/api/v1/patient/assessments?patientId={PATIENT}&page=1&pageSize=50")

    assert status == 200
    assert body["paging"] == {"hasMore": True, "page": 1, "pageSize": 1, "total": total}
    assert body["data"] == [
        {
            "id": record_id(PATIENT, "assessments", 1),
            "patient_id": PATIENT,
            "value": value(PATIENT, "assessments", 1),
            "mds_ids": mds_ids(PATIENT, 1),
        }
    ]


@pytest.mark.parametrize("domain", ["assessments", "conditions", "medications", "vital_signs"])
async def test_pages_end_where_they_say_and_the_next_is_not_there(http: aiohttp.ClientSession, domain: str) -> None:
    last = pages(PATIENT, domain)
    target = f"/api/v1/patient/{domain}?patientId={PATIENT}&pageSize=1"

    ends = [(await ask(http, f"{target}&page={page}"))[1]["paging"]["hasMore"] for page in range(1, last + 1)]
    status, body = await ask(http, f"{target}&page={last + 1}")

    assert ends == [True] * (last - 1) + [False]
    assert (status, body) == (404, {"error": f"patient {PATIENT} has {last} pages of {domain}, not {last + 1}"})


async def test_demographics_are_one_flat_record(http: aiohttp.ClientSession) -> None:
    status, body = await ask(http, f"/api/v1/patient/demographics?patientId={PATIENT}")

    assert status == 200
    assert body["id"] == record_id(PATIENT, "demographics", 1)
    assert not any(isinstance(field, dict | list) for field in body.values())


async def test_details_are_one_row_for_one_assessment(http: aiohttp.ClientSession) -> None:
    status, body = await ask(http, f"/api/v1/pft/mds/details?assessmentId={ASSESSMENT}")

    assert status == 200
    payload = {"patient_id": PATIENT, "value": mds_value(ASSESSMENT)}
    assert body == {"rowCount": 1, "rows": [{"assessment_id": ASSESSMENT, "payload": payload}]}


@pytest.mark.parametrize(
    ("target", "status", "error"),
    [
        (f"/api/v1/pft/mds/details?assessmentId={ASSESSMENT},{ASSESSMENT}", 400, "more than one assessmentId"),
        (f"/api/v1/pft/mds/details?assessmentId={ASSESSMENT}&assessmentId=x", 400, "a parameter is given twice"),
        ("/api/v1/pft/mds/details", 400, "assessmentId '' is not the id of one assessment"),
        (f"/api/v1/pft/mds/details?assessmentId=MDS-{PATIENT}-p1-0-99", 404, "there is no assessment MDS-3-p1-0-99"),
        ("/api/v1/patient/conditions?patientId=1,2", 400, "patientId '1,2' is not the number of one patient"),
        ("/api/v1/patient/conditions?patientId=0", 400, "patientId '0'"),
        ("/api/v1/patient/conditions?patientId=1&page=0", 400, "page '0' is not a number from 1"),
        ("/api/v1/patient/allergies?patientId=1", 404, "there is no /api/v1/patient/allergies"),
    ],
)
async def test_what_cannot_be_answered_is_refused(
    http: aiohttp.ClientSession, target: str, status: int, error: str
) -> None:
    found, body = await ask(http, target)

    assert found == status
    assert error in body["error"]


async def test_over_the_limit_requests_are_refused_and_cost_nothing(
    service: Service, http: aiohttp.ClientSession
) -> None:
    service.reset(5)
    target = f"/api/v1/pft/mds/details?assessmentId={ASSESSMENT}"

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(http.get(target)) for _ in range(12)]
    responses = [task.result() for task in asked]
    refused = [response for response in responses if response.status == 429]

    assert len(refused) >= 1
    assert {response.headers["Retry-After"] for response in refused} == {"1"}
    stats = service.stats()
    assert (stats["limit"], stats["requests"], stats["refused"]) == (5, 12, len(refused))
    for response in responses:
        response.release()


def test_the_window_of_the_limiter_slides() -> None:
    limiter = Limiter(2)

    passed = [limiter.admits(now) for now in (0.0, 0.75, 0.8, 0.9, 1.0, 1.5, 1.75, 2.0)]

    assert passed == [True, True, False, False, True, False, True, True]


def test_without_a_limit_everything_passes() -> None:
    assert all(Limiter(0).admits(0.0) for _ in range(1000))


async def test_effects_are_counted_by_key_and_by_record(service: Service, http: aiohttp.ClientSession) -> None:
    one, other = (f"/api/v1/pft/mds/details?assessmentId={name}" for name in mds_ids(PATIENT, 1)[:2])

    await ask(http, one, **{"Idempotency-Key": "k1"})
    await ask(http, one, **{"idempotency-key": "k1"})
    await ask(http, other, **{"Idempotency-Key": "k1"})
    await ask(http, other)
    await ask(http, "/api/v1/pft/mds/details?assessmentId=x", **{"Idempotency-Key": "k2"})

    counted = service.stats()["endpoints"]["mds_details"]
    assert counted == {
        "requests": 5, "statuses": {"200": 4, "400": 1}, "distinct_records": 2, "distinct_keys": 1, "without_key": 1,
        "keys_used_for_two_records": 1,
    }  # fmt: skip


async def test_a_reset_begins_anew(service: Service, http: aiohttp.ClientSession) -> None:
    await ask(http, f"/api/v1/patient/demographics?patientId={PATIENT}")
    await ask(http, "/nowhere")
    before = service.stats()

    service.reset(7)

    after = service.stats()
    assert (before["requests"], before["unknown"]) == (1, 1)
    assert (after["requests"], after["unknown"], after["limit"]) == (0, 0, 7)


async def test_other_methods_and_limits_that_are_no_number_are_refused(http: aiohttp.ClientSession) -> None:
    async with http.post("/api/v1/patient/demographics?patientId=1") as posted, http.post("/reset?limit=x") as reset:
        assert (posted.status, reset.status) == (405, 400)


async def test_requests_may_arrive_in_pieces_and_several_at_once(service: Service) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = b"GET /api/v1/patient/demographics?patientId=1 HTTP/1.1\r\nHost: x\r\n\r\n"

    writer.write(request[:20])
    await writer.drain()
    writer.write(request[20:] + request)
    answers = [await reader.readuntil(b"}") for _ in range(2)]
    writer.write(b"nonsense\r\n\r\n")
    refused = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in answers)
    assert refused.startswith(b"HTTP/1.1 400 Bad Request\r\n")
