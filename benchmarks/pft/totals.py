"""What the API holds. Every answer is a function of the ids, so the totals of a run are known before it starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "DEMOGRAPHICS", "DETAILS", "DOMAINS", "MOST_PAGES", "PAGED", "Size", "Totals",
    "expected", "mds_count", "mds_ids", "mds_value", "number", "pages", "record_id", "value",
]  # fmt: skip

PAGED = {"assessments": (2, 4), "conditions": (1, 3), "medications": (2, 3), "vital_signs": (1, 1)}
"""The fewest and the most pages a patient has, by domain."""
MOST_PAGES = max(most for _, most in PAGED.values())
DEMOGRAPHICS = "demographics"
DOMAINS = (*PAGED, DEMOGRAPHICS)
DETAILS = "mds_details"


def number(text: str) -> int:
    """The number that stands for a text: its md5."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest())


def pages(patient: int, domain: str) -> int:
    """How many pages a patient has in a domain."""
    fewest, most = PAGED.get(domain, (1, 1))
    return fewest + number(f"{patient}:{domain}") % (most - fewest + 1)


def record_id(patient: int, domain: str, page: int) -> str:
    """The id of the one record on a page."""
    return f"{domain[:4].upper()}-{patient}-p{page}-i0"


def value(patient: int, domain: str, page: int) -> int:
    """The value of the one record on a page."""
    return number(f"{patient}:{domain}:{page}") % 100


def mds_count(patient: int, page: int) -> int:
    """How many assessments with details an assessment record lists."""
    return 5 + number(f"{patient}:assessments:{page}") % 6


def mds_ids(patient: int, page: int) -> list[str]:
    """The assessments whose details must be fetched one by one, as an assessment record lists them."""
    return [f"MDS-{patient}-p{page}-0-{index:02d}" for index in range(mds_count(patient, page))]


def mds_value(assessment: str) -> int:
    """What the details of an assessment say."""
    return number(assessment) % 100


@dataclass(frozen=True)
class Size:
    """How large a run is. Patients are numbered through, from 1, facility after facility."""

    facilities: int = 10
    patients: int = 1000

    def patients_of(self, facility: int) -> range:
        """The patients of a facility; facilities count from 1."""
        return range((facility - 1) * self.patients + 1, facility * self.patients + 1)

    @property
    def all_patients(self) -> range:
        """Those of all facilities."""
        return range(1, self.facilities * self.patients + 1)

    def __str__(self) -> str:
        return f"{self.facilities} x {self.patients}"


@dataclass(frozen=True)
class Totals:
    """How many records there are of each domain, and how many details."""

    counts: dict[str, int]

    @property
    def requests(self) -> int:
        """One for each."""
        return sum(self.counts.values())


def expected(patients: range) -> Totals:
    """What a complete run over these patients finds."""
    counts = {domain: sum(pages(patient, domain) for patient in patients) for domain in DOMAINS}
    counts[DETAILS] = sum(mds_count(patient, page) for patient, page in _assessments(patients))
    return Totals(counts)


def _assessments(patients: range) -> Iterator[tuple[int, int]]:
    for patient in patients:
        for page in range(1, pages(patient, "assessments") + 1):
            yield patient, page
