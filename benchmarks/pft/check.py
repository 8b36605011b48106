"""Whether a run has found every record there is, and nothing else.

    python -m benchmarks.pft.check --dsn DSN --run RUN [--facilities 10] [--patients 1000] [--json]

What should be there comes from the generator, not from anything the run has written. Exit 0 when every record is there
with its id and value, 4 on any difference, 3 when the database cannot be read. A run of which nothing is expected
proves nothing, and is a difference too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import msgspec
import psycopg

from benchmarks.pft.totals import DETAILS, DOMAINS, Size, mds_ids, mds_value, pages, record_id, value

__all__ = ["Count", "Verdict", "check"]

_EXAMPLES = 3

# Rows by facility: at full size a facility has some 32,000, which is what is held in memory at once.
_RECORDS = "SELECT domain, id, patient, page, total, value FROM pft_record WHERE run = %s AND facility = %s"
_DETAILS = "SELECT id, patient, (payload ->> 'value')::int FROM pft_detail WHERE run = %s AND facility = %s"
_ELSEWHERE = """
SELECT count(*) FROM (SELECT run, facility FROM pft_record UNION ALL SELECT run, facility FROM pft_detail) AS saved
WHERE run = %s AND facility NOT BETWEEN 1 AND %s
"""
_OPEN = "SELECT count(*) FROM pft_queue WHERE run = %s AND state <> 'done'"

Row = tuple[object, ...]


class Count(msgspec.Struct, kw_only=True):
    """One domain of one facility."""

    facility: int
    kind: str
    expected: int
    found: int
    missing: int
    unexpected: int
    wrong: int
    examples: list[str] = []

    @property
    def right(self) -> bool:
        return self.expected > 0 and self.found == self.expected and not (self.missing or self.unexpected or self.wrong)


class Verdict(msgspec.Struct, kw_only=True):
    """What there is of a whole run."""

    run: str
    counts: list[Count]
    elsewhere: int
    """Records of facilities that the run does not have."""
    open: int
    """Rows of the queue that nobody has finished."""

    @property
    def right(self) -> bool:
        return bool(self.counts) and all(count.right for count in self.counts) and not (self.elsewhere or self.open)

    @property
    def totals(self) -> dict[str, int]:
        """Records found, by domain."""
        return {kind: sum(each.found for each in self.counts if each.kind == kind) for kind in (*DOMAINS, DETAILS)}


def check(dsn: str, run: str, size: Size) -> Verdict:
    """Compare what Postgres holds with what the generator says."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        counts = [
            count
            for facility in range(1, size.facilities + 1)
            for count in _facility(connection, run, facility, size.patients_of(facility))
        ]
        elsewhere, still_open = (
            _number(connection, _ELSEWHERE, (run, size.facilities)),
            _number(connection, _OPEN, (run,)),
        )
    return Verdict(run=run, counts=counts, elsewhere=elsewhere, open=still_open)


def _facility(connection: psycopg.Connection[Row], run: str, facility: int, patients: range) -> Iterator[Count]:
    found: dict[str, dict[str, Row]] = {kind: {} for kind in (*DOMAINS, DETAILS)}
    for domain, name, *rest in connection.execute(_RECORDS.encode(), (run, facility)):
        found.setdefault(str(domain), {})[str(name)] = tuple(rest)
    for name, *rest in connection.execute(_DETAILS.encode(), (run, facility)):
        found[DETAILS][str(name)] = tuple(rest)
    for kind, rows in found.items():
        yield _compare(facility, kind, _expected(kind, patients), rows)


def _expected(kind: str, patients: range) -> dict[str, Row]:
    if kind == DETAILS:
        return {
            name: (patient, mds_value(name))
            for patient in patients
            for page in range(1, pages(patient, "assessments") + 1)
            for name in mds_ids(patient, page)
        }
    if kind not in DOMAINS:
        return {}
    return {
        record_id(patient, kind, page): (patient, page, pages(patient, kind), value(patient, kind, page))
        for patient in patients
        for page in range(1, pages(patient, kind) + 1)
    }


def _compare(facility: int, kind: str, expected: dict[str, Row], found: dict[str, Row]) -> Count:
    missing, unexpected = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    wrong = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
    return Count(
        facility=facility,
        kind=kind,
        expected=len(expected),
        found=len(found),
        missing=len(missing),
        unexpected=len(unexpected),
        wrong=len(wrong),
        examples=[
            *(f"{name} is missing" for name in missing[:_EXAMPLES]),
            *(f"{name} should not be there" for name in unexpected[:_EXAMPLES]),
            *(f"{name} is {found[name]}, not {expected[name]}" for name in wrong[:_EXAMPLES]),
        ],
    )


def _number(connection: psycopg.Connection[Row], query: str, parameters: Row) -> int:
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return int(str(row[0]))


def table(verdict: Verdict) -> str:
    """The counts as text, and what is wrong with them."""
    heads = ("facility", "domain", "expected", "found", "missing", "unexpected", "wrong")
    lines = [f"{heads[0]:>8}  {heads[1]:<12}" + "".join(f"{head:>12}" for head in heads[2:])]
    for each in verdict.counts:
        figures = (each.expected, each.found, each.missing, each.unexpected, each.wrong)
        lines.append(f"{each.facility:>8}  {each.kind:<12}" + "".join(f"{figure:>12}" for figure in figures))
        lines += [f"{'':>10}{example}" for example in each.examples]
        if not each.expected:
            lines.append(f"{'':>10}nothing was expected, so nothing is proven")
    if not verdict.counts:
        lines.append("no facility was expected, so nothing is proven")
    if verdict.elsewhere:
        lines.append(f"{verdict.elsewhere} records are of facilities that this run does not have")
    if verdict.open:
        lines.append(f"{verdict.open} rows of the queue are not done")
    lines.append(f"run {verdict.run}: {'every record is there' if verdict.right else 'NOT COMPLETE'}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Check one run and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pft.check", description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--run", required=True, help="the id of the execution, or the name of a reference's run")
    parser.add_argument("--facilities", type=int, default=10)
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        verdict = check(given.dsn, given.run, Size(given.facilities, given.patients))
    except psycopg.Error as error:
        print(
            f"the database cannot be read: {error}; is --dsn right, and has the run made its tables?", file=sys.stderr
        )
        return 3
    print(msgspec.json.encode(verdict).decode() if given.json else table(verdict))
    return 0 if verdict.right else 4


if __name__ == "__main__":
    sys.exit(main())
