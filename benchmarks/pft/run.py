"""Run the canonical workload with every contestant and report how they compare.

    python -m benchmarks pft [--facilities 2] [--patients 200] [--limit 0] [--chaos 0] [--rounds 3] [--json]

The same machine, API and Postgres for all, turn by turn; each turn is checked record by record before it counts, and
the API's own counters must agree. With --chaos one of the contestant's processes is killed every so many seconds; only
those take part that are made to survive it. A report is written to benchmarks/reports. Exit 4 when a record is missing
or wrong, or a record was not asked for under exactly one key.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.pft.chaos import Kills, Victims, killing
from benchmarks.pft.check import check, table
from benchmarks.pft.drain import Drained, Plan
from benchmarks.pft.facilities import facilities
from benchmarks.pft.report import Report, Turn, write
from benchmarks.pft.services import Service, api, postgres
from benchmarks.pft.totals import MOST_PAGES, Size, expected
from tests.services.postgres_server import Database

__all__ = ["CONTESTANTS", "Conditions", "Entrant", "Mismatch", "Scene", "check_effects", "main"]

_WARM_UP = Size(1, 5)
_RECLAIM = 30.0
_QUICK_RECLAIM = 1.0  # a run that is killed every few seconds would otherwise mostly wait
_EMPTY = "TRUNCATE pft_queue, pft_record, pft_detail, pft_validated"


class Entrant(msgspec.Struct, frozen=True):
    """A contestant that is ready."""

    work: Callable[[str, Size], Drained]
    """Does a whole run of this name and size."""
    victims: Victims = list
    """Its processes that may be killed while it works."""
    in_flight: int = 0
    """The requests whose answers can be lost with one of them."""
    lost: Callable[[str], int] | None = None
    """The same for all kills of a run together, where a log tells."""
    recorded_as: Callable[[str], str] = str
    """What the rows of a run are called in the tables."""


class Scene(msgspec.Struct, frozen=True):
    """What every contestant is given."""

    service: Service
    database: Database
    cores: int
    reclaim_seconds: float = _RECLAIM

    @property
    def plan(self) -> Plan:
        return Plan(api=self.service.url, dsn=self.database.dsn)


@contextmanager
def _asyncio(scene: Scene) -> Iterator[Entrant]:
    from benchmarks.pft.reference_a import processes

    with processes(scene.plan, scene.cores) as crew:
        yield Entrant(
            lambda run, size: facilities(scene.database.dsn, run, size, crew.drain, scene.reclaim_seconds),
            victims=crew.pids,
            in_flight=scene.plan.requests * MOST_PAGES,
        )


@contextmanager
def _pyspark(scene: Scene) -> Iterator[Entrant]:
    from benchmarks.pft.reference_b import session, tasks

    with session(scene.cores) as spark:
        drain = tasks(spark, scene.plan, scene.cores)
        yield Entrant(lambda run, size: facilities(scene.database.dsn, run, size, drain, scene.reclaim_seconds))


@contextmanager
def _playbook(scene: Scene) -> Iterator[Entrant]:
    from benchmarks.pft.ours import installation

    with installation(scene.service.url, scene.database, scene.reclaim_seconds) as ours:
        yield Entrant(ours.run, victims=ours.pids, lost=ours.lost, recorded_as=ours.recorded_as)


CONTESTANTS: dict[str, Callable[[Scene], AbstractContextManager[Entrant]]] = {
    "ours": _playbook,
    "reference_a": _asyncio,
    "reference_b": _pyspark,
}
"""Each is started and warmed up before its first turn, and stays up for all of them."""
SURVIVORS = frozenset({"ours", "reference_a"})
"""Those that are made to have processes killed. Spark on one machine gives a job up with its first failed task, and
reference B with it; ours begins another."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Under which the contestants take their turns."""

    size: Size
    limit: int = 0
    chaos: float = 0.0
    """Seconds between two kills; 0 for none."""


class Mismatch(Exception):
    """A run that has not found what there is, or has asked for it wrongly."""


def main(arguments: list[str] | None = None) -> int:
    """Let the contestants take turns, and write the report."""
    parser = _parser()
    given = parser.parse_args(arguments)
    names = [name for name in given.only if name in SURVIVORS or not given.chaos]
    if not names:
        parser.error(f"--chaos is for {', '.join(sorted(SURVIVORS))}")
    conditions = Conditions(size=Size(given.facilities, given.patients), limit=given.limit, chaos=given.chaos)
    turns: list[Turn] = []
    with ExitStack() as stack:
        reclaim = _QUICK_RECLAIM if given.chaos else _RECLAIM
        scene = Scene(stack.enter_context(api()), stack.enter_context(postgres()), given.cores, reclaim)
        entrants = {name: stack.enter_context(_warm(name, scene)) for name in names}
        try:
            for number in range(1, given.rounds + 1):
                for name, entrant in entrants.items():
                    turns.append(_turn(scene, name, entrant, conditions, number))
                    _say(turns[-1])
        except Mismatch as mismatch:
            print(mismatch, file=sys.stderr)
            return 4
    report = _report(conditions, given.cores, turns)
    paths = write(report, given.out)
    print(msgspec.json.encode(report).decode() if given.json else "\n".join(str(path) for path in paths))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks pft", description=__doc__)
    parser.add_argument("--facilities", type=int, default=2)
    parser.add_argument("--patients", type=int, default=200, help="in each facility")
    parser.add_argument("--limit", type=int, default=0, help="requests the API answers within a second; 0 for all")
    parser.add_argument("--chaos", type=float, default=0.0, metavar="SECONDS", help="kill a process this often")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), help="leave the others out"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/reports"))
    parser.add_argument("--json", action="store_true", help="print the report instead of where it is")
    return parser


@contextmanager
def _warm(name: str, scene: Scene) -> Iterator[Entrant]:
    """A contestant that has done a small run already, as one in daily use would have."""
    with CONTESTANTS[name](scene) as entrant:
        entrant.work(f"{name}-warm-up", _WARM_UP)
        yield entrant


def _turn(scene: Scene, name: str, entrant: Entrant, conditions: Conditions, number: int) -> Turn:
    run, size = f"{name}-{number}", conditions.size
    scene.database.query(_EMPTY)
    scene.service.reset(conditions.limit)
    chaos = killing(entrant.victims, conditions.chaos) if conditions.chaos else nullcontext(Kills())
    begun = time.perf_counter()
    with chaos as kills:
        done = entrant.work(run, size)
    took = time.perf_counter() - begun
    stats = scene.service.stats()
    verdict = check(scene.database.dsn, entrant.recorded_as(run), size)
    if not verdict.right:
        raise Mismatch(table(verdict))
    most_twice = kills.count * entrant.in_flight if entrant.lost is None else entrant.lost(run)
    check_effects(run, stats, expected(size.all_patients).requests, most_twice)
    return Turn(contestant=name, seconds=took, done=done, stats=stats, totals=verdict.totals, kills=kills.count)


def check_effects(run: str, stats: dict[str, Any], wanted: int, most_twice: int) -> None:
    """Every record was asked for under a key of its own, and no more of them twice than kills can explain.

    A row that is lost with a process may have had its answer already; it is asked for again under the same key.
    """
    exact = stats["distinct_records"] == stats["distinct_keys"] == wanted
    if not exact or stats["without_key"] or stats["keys_used_for_two_records"]:
        raise Mismatch(
            f"run {run}: {wanted} effects expected; the API has seen {stats['distinct_records']} records under "
            f"{stats['distinct_keys']} keys, {stats['without_key']} requests without a key and "
            f"{stats['keys_used_for_two_records']} keys for two records"
        )
    twice = stats["requests"] - stats["refused"] - wanted
    if twice > most_twice:
        raise Mismatch(f"run {run}: {twice} requests were answered again; kills explain {most_twice} at most")


def _report(conditions: Conditions, cores: int, turns: list[Turn]) -> Report:
    names = list(dict.fromkeys(turn.contestant for turn in turns))
    seconds = {name: statistics.median(turn.seconds for turn in turns if turn.contestant == name) for name in names}
    return Report(
        facilities=conditions.size.facilities,
        patients=conditions.size.patients,
        limit=conditions.limit,
        chaos=conditions.chaos,
        cores=cores,
        requests=sum(turns[0].totals.values()),
        seconds=seconds,
        ratios={f"{one}/{other}": seconds[one] / seconds[other] for one in names for other in names if one > other},
        turns=turns,
    )


def _say(turn: Turn) -> None:
    print(
        f"{turn.contestant:<12} {turn.seconds:>8.2f} s  {turn.rate:>7.0f} requests/s  {turn.done.frames} frames"
        f"{f'  {turn.kills} kills' if turn.kills else ''}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
