"""Claims of a cursor: rendered once for each slot, tried again while there is hope, and recorded as they came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.data.frame.output import claimed_rows
from noetl.data.frame.slot import ClaimFailed
from noetl.kernel.event import Json
from noetl.payloads.caches import Caches
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.runtime.stages.body import StageBody
from noetl.runtime.stages.claims import Claims
from noetl.runtime.worker import Worker
from noetl.settings import Bytes, Payloads
from noetl.tools.base import Call, Outcome, Rendering, failed, ok
from noetl.tools.registry import Registry
from noetl.tools.secrets.redaction import Redactor
from tests.stagework import TENANT, plan_of

DOCUMENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t}
workflow:
  - step: load
    loop: {cursor: {kind: postgres, auth: pg, claim: "SELECT 1"}, iterator: row, spec: {mode: cursor}}
    tool: {kind: noop}
"""
CLAIM = "SELECT {{ queue }} {{ __worker_slot_id }} LIMIT {{ __frame_max_rows }} {{ __frame_policy.process }}"
BUSY = failed("db_deadlock", "PG_40P01", "deadlock detected")


class Database:
    """Answers as it is told."""

    kind = "postgres"
    rendering: Mapping[str, Rendering] = {}
    required: tuple[tuple[str, ...], ...] = ()

    def __init__(self, *answers: Outcome) -> None:
        self.answers = list(answers)
        self.calls: list[Call] = []

    def side_effecting(self, fields: Json) -> bool:
        return True

    async def run(self, call: Call) -> Outcome:
        self.calls.append(call)
        return self.answers.pop(0)

    async def close(self) -> None:
        """Nothing is open."""


class Patient(VirtualClock):
    """A clock on which every wait is over at once, and written down."""

    def __init__(self) -> None:
        super().__init__(0)
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def no_calls(*_: Any) -> Json:
    raise AssertionError("nothing is called")


def tiers() -> PayloadTiers:
    caches = Caches(Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0)), VirtualClock(0))
    return PayloadTiers(PayloadStore(MemoryObjectStore(), TENANT, "shop"), caches)


def claims_of(database: Database, clock: VirtualClock, claim: str = CLAIM) -> Claims:
    worker = Worker(Registry({"postgres": database}), clock, no_calls, Path(), Path())
    cursor = {"cursor": {"kind": "postgres", "auth": {"db_host": "x"}, "claim": claim}}
    plan = msgspec.structs.replace(
        plan_of("loop", max_rows=5), document=DOCUMENT, source=cursor, context={"ctx": {"queue": "q"}}
    )
    return Claims(StageBody(worker, plan), tiers())


def rows(*found: Json) -> Outcome:
    return ok({"rows": list(found)})


async def test_a_few_rows_come_along_as_they_are() -> None:
    database, store = Database(rows({"id": 1, "x": 1}, {"id": 2, "x": "b"}), rows()), Patient()
    claims = claims_of(database, store)
    opening = await claims.claim(3)
    assert opening is not None
    assert (opening.slot, opening.row_count, bool(opening.claim_id)) == (3, 2, True)
    assert opening.inline == ({"id": 1, "x": 1}, {"id": 2, "x": "b"})
    assert opening.rows is None
    assert opening.has_rows
    assert await claims.claim(3) is None


async def test_many_bytes_of_rows_are_recorded_as_they_came() -> None:
    many: list[Json] = [{"id": 1, "x": 1}, {"id": 2, "x": "b" * 9000}]
    claims = claims_of(Database(rows(*many)), Patient())
    opening = await claims.claim(3)
    assert opening is not None
    assert (opening.row_count, opening.inline, opening.has_rows) == (2, None, True)
    assert opening.rows is not None
    table = claims.fresh(opening.rows.sha256)
    assert table is not None
    assert claimed_rows(table) == many
    assert claims.fresh(opening.rows.sha256) is None


async def test_rows_with_a_secret_in_them_stand_in_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = claims_of(Database(rows({"id": 1, "x": "tell-nobody"}), rows({"id": 2})), Patient())

    class Secretive:
        redactor = Redactor()

    Secretive.redactor.add("pg.password", "tell-nobody")

    async def session() -> Secretive:
        return Secretive()

    monkeypatch.setattr(claims._body, "session", session)
    claims._calls[0] = Call(kind="postgres", fields={"command": "SELECT 1"})
    with_secret, without = await claims.claim(0), await claims.claim(0)
    assert with_secret is not None
    assert with_secret.inline is None
    assert with_secret.rows is not None
    assert without is not None
    assert without.inline == ({"id": 2},)


@pytest.mark.parametrize(
    ("claim", "is_alone"),
    [
        ("UPDATE q SET s = 1 WHERE id IN (SELECT id FROM q FOR UPDATE SKIP LOCKED) RETURNING id", True),
        ("UPDATE q SET s = 1 WHERE id IN (SELECT id FROM q) RETURNING id", False),
        ("UPDATE q SET s = 1; SELECT id FROM q FOR UPDATE SKIP LOCKED", False),
    ],
)
async def test_one_statement_that_waits_for_no_lock_needs_no_transaction(claim: str, is_alone: bool) -> None:
    database = Database(rows())
    await claims_of(database, Patient(), claim).claim(0)
    assert database.calls[0].fields.get("autocommit", False) is is_alone


async def test_the_statement_is_rendered_for_its_slot_with_all_names() -> None:
    database = Database(rows(), rows())
    claims = claims_of(database, Patient())
    await claims.claim(0)
    await claims.claim(7)
    assert [call.fields["command"] for call in database.calls] == ["SELECT q 0 LIMIT 5 row", "SELECT q 7 LIMIT 5 row"]


async def test_a_claim_that_may_succeed_later_is_tried_three_times_more() -> None:
    clock = Patient()
    database = Database(BUSY, BUSY, BUSY, rows({"id": 1}))
    assert await claims_of(database, clock).claim(0) is not None
    assert clock.waits == [0.5, 1.0, 2.0]


async def test_and_then_it_fails_with_what_the_database_said() -> None:
    with pytest.raises(ClaimFailed) as failure:
        await claims_of(Database(*[BUSY] * 4), Patient()).claim(0)
    assert failure.value.error["code"] == "PG_40P01"
    assert failure.value.error["message"] == "the claim of step 'load' failed: deadlock detected"


async def test_one_that_is_wrong_is_not_tried_again() -> None:
    clock = Patient()
    with pytest.raises(ClaimFailed):
        await claims_of(Database(failed("schema", "PG_42601", "syntax error")), clock).claim(0)
    assert clock.waits == []


async def test_a_name_that_is_not_there_fails_the_claim_before_anything_is_asked() -> None:
    database = Database()
    with pytest.raises(ClaimFailed, match="nobody"):
        await claims_of(database, Patient(), "SELECT {{ nobody }}").claim(0)
    assert database.calls == []
