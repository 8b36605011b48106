"""The totals that every run is judged by."""

from __future__ import annotations

import pytest

from benchmarks.pft.totals import DETAILS, Size, expected, mds_count, mds_ids, pages, record_id, value


def test_the_totals_of_a_full_run_are_known() -> None:
    totals = expected(range(1, 10_001))

    assert totals.counts == {
        "assessments": 29_898, "conditions": 19_907, "medications": 25_024, "vital_signs": 10_000,
        "demographics": 10_000, "mds_details": 224_443,
    }  # fmt: skip
    assert totals.requests == 319_272


def test_the_details_of_every_facility_are_known() -> None:
    size = Size()
    details = [expected(size.patients_of(facility)).counts[DETAILS] for facility in range(1, 11)]

    assert details == [22630, 22360, 22475, 22453, 22578, 22362, 22482, 22459, 22123, 22521]


@pytest.mark.parametrize(
    ("size", "details", "of_first_pages"),
    [(Size(1, 10), 231, 70), (Size(1, 100), 2340, 756), (Size(2, 100), 4649, 1516), (Size(), 224_443, 75_174)],
    ids=str,
)
def test_smaller_runs_are_known_too(size: Size, details: int, of_first_pages: int) -> None:
    patients = range(1, size.facilities * size.patients + 1)

    assert expected(patients).counts[DETAILS] == details
    assert sum(mds_count(patient, 1) for patient in patients) == of_first_pages


def test_facilities_have_patients_of_their_own() -> None:
    size = Size(3, 7)
    patients = [patient for facility in (1, 2, 3) for patient in size.patients_of(facility)]

    assert patients == list(range(1, 22))


def test_ids_are_spelt_as_the_workload_says() -> None:
    assert record_id(12, "vital_signs", 1) == "VITA-12-p1-i0"
    assert mds_ids(12, 2)[:2] == ["MDS-12-p2-0-00", "MDS-12-p2-0-01"]
    assert 0 <= value(12, "assessments", 1) < 100
    assert pages(12, "demographics") == 1
