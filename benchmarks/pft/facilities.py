"""The order of the work, which both references keep: facility after facility, the domains, then the details."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from benchmarks.pft.drain import Drained
from benchmarks.pft.tables import EXPLODE, OUTSTANDING, RECLAIM, SEED, TABLES, VALIDATE
from benchmarks.pft.totals import DETAILS, DOMAINS, Size

__all__ = ["Drain", "Incomplete", "facilities"]

_ROUNDS = 20

Drain = Callable[[str, int, list[str]], Drained]
"""Drains these kinds of a facility of a run, with every process there is."""


class Incomplete(Exception):
    """A facility has fewer records than the API said it has."""


def facilities(dsn: str, run: str, size: Size, drain: Drain, reclaim_seconds: float = 30.0) -> Drained:
    """Do all the work of a run. Raises Incomplete where records are missing at the end of a facility."""
    done = Drained()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        for facility in range(1, size.facilities + 1):
            scope = {"run": run, "facility": facility, "patients": size.patients, "reclaim": reclaim_seconds}
            connection.execute(SEED.encode(), scope)
            for _ in range(_ROUNDS):
                done += drain(run, facility, list(DOMAINS))
                connection.execute(EXPLODE.encode(), scope)
                done += drain(run, facility, [DETAILS])
                if connection.execute(OUTSTANDING.encode(), scope).fetchone() == (0,):
                    break
                time.sleep(reclaim_seconds)  # until the claims of a process that was lost are old enough
                connection.execute(RECLAIM.encode(), scope)
            _validate(connection.execute(VALIDATE.encode(), scope).fetchall(), facility)
    return done


def _validate(counts: list[tuple[str, int, int]], facility: int) -> None:
    wrong = [f"{kind}: {found} of {expected}" for kind, expected, found in counts if found != expected or not expected]
    if wrong or len(counts) != len(DOMAINS) + 1:
        raise Incomplete(f"facility {facility} is not complete: {', '.join(wrong) or 'a domain has no rows'}")
