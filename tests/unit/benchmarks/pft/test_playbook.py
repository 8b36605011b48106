"""The playbook is valid, runs the statements of the references, and its bodies find every record.

What its steps do is tried by hand, one after the other, with the tools they name; the way through them by the engine.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import benchmarks.pft
import noetl
from benchmarks.pft import tables
from benchmarks.pft.check import check
from benchmarks.pft.services import Service
from benchmarks.pft.totals import DETAILS, DOMAINS, Size, expected
from noetl.engine.pipeline import Ended, Pipeline, RunTask, TaskOutcome, Wait
from noetl.engine.script import Script
from noetl.playbook import load, parse
from noetl.playbook.document import Step
from noetl.playbook.templates import Host, render_strict
from noetl.tools.base import Call, Tool
from noetl.tools.http import HttpTool
from noetl.tools.noop import NoopTool
from noetl.tools.postgres import PostgresTool
from tests.services.postgres import Database

FILE = Path(benchmarks.pft.__file__).with_name("pft.yaml")
PLAYBOOK = load(FILE.read_text(encoding="utf-8"), FILE.name)
SIZE = Size(1, 4)


class Hand:
    """Runs steps of the playbook as a worker would, rows of a claim side by side."""

    def __init__(self, run: str, workload: dict[str, Any], credential: dict[str, object]) -> None:
        self._tools: dict[str, Tool] = {tool.kind: tool for tool in (HttpTool(), PostgresTool(), NoopTool())}
        self._workload = {**PLAYBOOK.workload, **workload}
        self._names = {"workload": self._workload, "ctx": {"facility": 1, "round": 1}, "execution_id": run}
        self._credential = credential
        self.waits: list[float] = []

    async def run(self, name: str, **more: Any) -> Ended:
        """One step, or the body of a loop for one row."""
        script = Script(PLAYBOOK.steps[name], lambda kind: self._tools[kind].rendering)
        pipeline = Pipeline(script, self._names | more, Host())
        state = pipeline.begin()
        while not isinstance(state, Ended):
            if isinstance(state, Wait):
                self.waits.append(state.seconds)
                await asyncio.sleep(min(state.seconds, 0.05))
                state = pipeline.resume()
            else:
                state = pipeline.outcome(await self._task(name, state, more))
        return state

    async def drain(self, name: str, rows: int = 3) -> int:
        """Claim and work until there is nothing left; the rows that were worked on."""
        done = 0
        while claimed := await self.claim(PLAYBOOK.steps[name], rows):
            ended = await asyncio.gather(*(self.run(name, item=row, iter={"item": row}) for row in claimed))
            assert [each.error for each in ended] == [None] * len(claimed)
            done += len(claimed)
        return done

    async def claim(self, step: Step, rows: int) -> list[dict[str, Any]]:
        assert step.loop is not None
        assert step.loop.cursor is not None
        names = {**self._workload, **self._names, "__frame_max_rows": rows}
        statement = render_strict(step.loop.cursor.claim, names)
        outcome = await self._tools["postgres"].run(
            Call(kind="postgres", fields={"query": statement}, auth=self._credential)
        )
        assert outcome.error is None, outcome.error
        claimed: list[dict[str, Any]] = outcome.result["rows"]
        assert len(claimed) <= rows
        return claimed

    async def close(self) -> None:
        for tool in self._tools.values():
            await tool.close()

    async def _task(self, step: str, asked: RunTask, more: dict[str, Any]) -> TaskOutcome:
        key = f"{step}/{more.get('item', {}).get('id')}/{asked.task.name}.{asked.visit}"
        kind = asked.task.kind
        auth = self._credential if kind == "postgres" else None
        outcome = await self._tools[kind].run(
            Call(kind=kind, fields=asked.fields, auth=auth, effect_key=key, timeout=asked.timeout)
        )
        return TaskOutcome(result=outcome.result, error=outcome.error, extra=outcome.extra)


@pytest.fixture
async def hand(service: Service, postgres: Database, request: pytest.FixtureRequest) -> AsyncIterator[Hand]:
    workload = {"api": service.url, "patients": SIZE.patients, "reclaim_seconds": 0}
    made = Hand(request.node.name, workload, postgres.credential)
    await made.run("start")
    await made.run("seed")
    yield made
    await made.close()


async def test_its_bodies_find_every_record_with_one_request_each(
    hand: Hand, service: Service, postgres: Database, request: pytest.FixtureRequest
) -> None:
    rows = [await hand.drain(domain) for domain in DOMAINS]
    await hand.run("explode")
    details = await hand.drain("details")
    outstanding, validate, summary = [await hand.run(step) for step in ("outstanding", "validate", "summary")]

    wanted = expected(SIZE.patients_of(1))
    counts = {row["kind"]: row["found"] for row in summary.result["rows"]}
    stats = service.stats()
    assert check(postgres.dsn, request.node.name, SIZE).right
    assert (rows, details) == ([SIZE.patients] * len(DOMAINS), wanted.counts[DETAILS])
    assert outstanding.result["rows"] == [{"open": 0}]
    assert validate.error is None
    assert counts == wanted.counts
    assert stats["requests"] == stats["distinct_records"] == stats["distinct_keys"] == wanted.requests


async def test_a_row_that_runs_twice_changes_nothing(
    hand: Hand, postgres: Database, request: pytest.FixtureRequest
) -> None:
    rows = await hand.claim(PLAYBOOK.steps["assessments"], 1)
    for _ in range(2):
        await hand.run("assessments", item=rows[0], iter={"item": rows[0]})
    await hand.run("explode")
    await hand.run("explode")

    found = postgres.query(
        f"SELECT count(*), max(total) FROM pft_record WHERE run = '{request.node.name}' AND domain = 'assessments'"
    )
    assert found[0][0] == found[0][1]


async def test_validation_fails_and_names_what_is_missing(hand: Hand) -> None:
    nothing = await hand.run("validate")
    for domain in DOMAINS:
        await hand.drain(domain)
    await hand.run("explode")
    without_details = await hand.run("validate")

    assert nothing.error is not None
    assert "facility 1 is not complete: assessments: 0 of 4, conditions: 0 of 4" in nothing.error["message"]
    assert without_details.error is not None
    details = expected(SIZE.patients_of(1)).counts[DETAILS]
    assert f"facility 1 is not complete: mds_details: 0 of {details}" in without_details.error["message"]


async def test_validation_fails_where_nothing_is_expected(
    hand: Hand, postgres: Database, request: pytest.FixtureRequest
) -> None:
    postgres.query(f"DELETE FROM pft_queue WHERE run = '{request.node.name}'")

    ended = await hand.run("validate")

    assert ended.error is not None
    assert "a domain has no rows" in ended.error["message"]


async def test_old_claims_go_back_to_pending(hand: Hand) -> None:
    lost = await hand.claim(PLAYBOOK.steps["conditions"], 3)
    left = await hand.claim(PLAYBOOK.steps["conditions"], 3)
    none_left = await hand.claim(PLAYBOOK.steps["conditions"], 3)

    outstanding = await hand.run("outstanding")
    await hand.run("reclaim")
    again = [row for _ in range(2) for row in await hand.claim(PLAYBOOK.steps["conditions"], 3)]

    assert (len(lost), len(left), none_left) == (3, 1, [])
    assert outstanding.result["rows"] == [{"open": SIZE.patients * len(DOMAINS)}]
    assert {row["id"] for row in again} == {row["id"] for row in lost + left}


async def test_it_waits_as_long_as_the_api_says(hand: Hand, service: Service) -> None:
    service.reset(1)
    rows = await hand.claim(PLAYBOOK.steps["medications"], 1)

    ended = await hand.run("medications", item=rows[0], iter={"item": rows[0]})

    assert ended.error is None
    assert service.stats()["refused"] == len(hand.waits) > 0
    assert set(hand.waits) == {1.0}


def test_it_goes_from_facility_to_facility_and_drains_one_again_that_has_open_rows(tmp_path: Path) -> None:
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    for step in document["workflow"]:  # the way through the steps, without what they do
        step.pop("loop", None)
        step["tool"] = {"kind": "noop"}
        if step["step"] == "outstanding":
            left = "{{ 1 if ctx.facility == 1 and ctx.round == 1 else 0 }}"
            step["tool"]["result"] = {"rows": [{"open": left}]}

    run = noetl.run(document, home=tmp_path / "home", facilities=2)

    round_ = ["seed", *DOMAINS, "explode", "details", "outstanding"]
    entered = [event.node_name for event in run.events() if event.event_type == "step.enter"]
    assert run.status == "COMPLETED"
    assert entered == ["start", *round_, "reclaim", *round_, "validate", *round_, "validate", "summary"]


def test_it_is_valid_without_a_warning() -> None:
    assert [str(problem) for problem in parse(FILE.read_text(encoding="utf-8"), FILE.name).problems] == []


@pytest.mark.parametrize("step", [*DOMAINS, "details"])
def test_every_domain_is_drained_by_a_cursor_loop_in_frames(step: str) -> None:
    loop = PLAYBOOK.steps[step].loop
    kind = DETAILS if step == "details" else step

    assert loop is not None
    assert loop.mode == "cursor"
    assert loop.cursor is not None
    assert _plain(loop.cursor.claim) == _plain(tables.CLAIM.replace("%(kind)s", f"'{kind}'"))


@pytest.mark.parametrize(
    ("step", "statement"),
    [
        ("start", tables.TABLES.strip()),
        ("seed", tables.SEED),
        ("assessments", tables.SAVE_PAGES),
        ("conditions", tables.SAVE_PAGES),
        ("medications", tables.SAVE_PAGES),
        ("vital_signs", tables.SAVE_PAGES),
        ("demographics", tables.SAVE_DEMOGRAPHICS),
        ("explode", tables.EXPLODE),
        ("details", tables.SAVE_DETAILS),
        ("outstanding", tables.OUTSTANDING),
        ("reclaim", tables.RECLAIM),
        ("validate", tables.VALIDATE),
    ],
)
def test_it_runs_the_statements_of_the_references(step: str, statement: str) -> None:
    fields = PLAYBOOK.steps[step].tasks[-1].fields
    said, wanted = _plain(fields.get("query") or fields["command"]), _plain(statement)

    assert said.startswith(f"{wanted};") if step == "validate" else said.endswith(wanted)


def test_a_facility_is_counted_once_as_in_the_references() -> None:
    counted = [step for step, found in PLAYBOOK.steps.items() if "FROM pft_count" in str(found.tasks[-1].fields)]

    assert counted == ["validate"]
    assert str(PLAYBOOK.steps["validate"].tasks[-1].fields).count("FROM pft_count") == 1


def _plain(statement: str) -> str:
    """Without what differs: parameters here, templates there, and the lines."""
    return " ".join(re.sub(r"'?\{\{.*?\}\}'?|%\(\w+\)s", "?", statement).split())
