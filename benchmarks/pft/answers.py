"""What the API answers: a function of the request alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from benchmarks.pft.totals import (
    DEMOGRAPHICS,
    DETAILS,
    PAGED,
    mds_count,
    mds_ids,
    mds_value,
    number,
    pages,
    record_id,
    value,
)

__all__ = ["DETAILS_PATH", "PATIENT", "Answer", "answer"]

PATIENT = "/api/v1/patient/"
DETAILS_PATH = "/api/v1/pft/mds/details"

_PATIENT_ID = re.compile(r"[1-9]\d{0,8}")
_MDS_ID = re.compile(r"MDS-([1-9]\d{0,8})-p([1-9]\d?)-0-(\d\d)")


@dataclass(frozen=True)
class Answer:
    """A status and a JSON document. `endpoint` is what it is counted under, "" if there is no such endpoint."""

    status: int
    document: dict[str, Any]
    endpoint: str


class _Refused(Exception):
    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def answer(target: str) -> Answer:
    """The answer to a GET of this path with its query."""
    path, _, query = target.partition("?")
    endpoint = _endpoint(path)
    try:
        if not endpoint:
            raise _Refused(404, f"there is no {path}")
        return Answer(200, _document(endpoint, _parameters(query)), endpoint)
    except _Refused as refused:
        return Answer(refused.status, {"error": str(refused)}, endpoint)


def _endpoint(path: str) -> str:
    if path == DETAILS_PATH:
        return DETAILS
    domain = path.removeprefix(PATIENT) if path.startswith(PATIENT) else ""
    return domain if domain in PAGED or domain == DEMOGRAPHICS else ""


def _parameters(query: str) -> dict[str, str]:
    """One value each: an API that took several would let a run fetch more than one record with a request."""
    pairs = parse_qsl(query, keep_blank_values=True)
    if len({name for name, _ in pairs}) < len(pairs):
        raise _Refused(400, "a parameter is given twice: ask for one record at a time")
    return dict(pairs)


def _document(endpoint: str, parameters: dict[str, str]) -> dict[str, Any]:
    if endpoint == DETAILS:
        return _details(parameters.get("assessmentId", ""))
    patient = parameters.get("patientId", "")
    if not _PATIENT_ID.fullmatch(patient):
        raise _Refused(400, f"patientId '{patient}' is not the number of one patient")
    if endpoint == DEMOGRAPHICS:
        return _demographics(int(patient))
    page = parameters.get("page", "1")
    if not _PATIENT_ID.fullmatch(page):
        raise _Refused(400, f"page '{page}' is not a number from 1")
    return _page(int(patient), endpoint, int(page))


def _page(patient: int, domain: str, page: int) -> dict[str, Any]:
    total = pages(patient, domain)
    if page > total:
        raise _Refused(404, f"patient {patient} has {total} pages of {domain}, not {page}")
    record: dict[str, Any] = {
        "id": record_id(patient, domain, page), "patient_id": patient, "value": value(patient, domain, page),
    }  # fmt: skip
    if domain == "assessments":
        record["mds_ids"] = mds_ids(patient, page)
    return {"data": [record], "paging": {"hasMore": page < total, "page": page, "pageSize": 1, "total": total}}


def _demographics(patient: int) -> dict[str, Any]:
    return {
        "id": record_id(patient, DEMOGRAPHICS, 1),
        "patient_id": patient,
        "value": value(patient, DEMOGRAPHICS, 1),
        "birth_year": 1930 + number(f"{patient}:birth_year") % 80,
        "sex": "FM"[number(f"{patient}:sex") % 2],
    }


def _details(assessment: str) -> dict[str, Any]:
    if "," in assessment:
        raise _Refused(400, "more than one assessmentId: ask for one at a time")
    found = _MDS_ID.fullmatch(assessment)
    if not found:
        raise _Refused(400, f"assessmentId '{assessment}' is not the id of one assessment")
    patient, page, index = map(int, found.groups())
    if page > pages(patient, "assessments") or index >= mds_count(patient, page):
        raise _Refused(404, f"there is no assessment {assessment}")
    payload = {"patient_id": patient, "value": mds_value(assessment)}
    return {"rowCount": 1, "rows": [{"assessment_id": assessment, "payload": payload}]}
