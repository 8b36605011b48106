"""What a worker may do that keeps a data stage: write to the log of that stage, while it has the command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl import __version__
from noetl.errors import Forbidden, InvalidInput, LeaseLost, NotFound, VersionConflict
from noetl.kernel.event import Draft, Json
from noetl.runtime.remote import wire
from noetl.runtime.remote.client import Hand
from noetl.runtime.stages.support import CallRequest
from tests.unit.runtime.remote.yard import Yard, open_yard
from tests.unit.server.api import book, step

LOOP = {"in": [1, 2], "iterator": "n", "spec": {"mode": "fanout"}}
STAGE = {"step": "a", "loop": LOOP, "tool": {"kind": "python", "code": "-"}}


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with open_yard(tmp_path) as found:
        hello = wire.Hello(worker_id="w", version=__version__, protocol=wire.PROTOCOL, pools=("spark",), concurrency=1)
        await found.control.register(hello)
        yield found


async def in_hand(yard: Yard, pool: str, *steps: Json) -> Hand:
    await yard.api.start(book(*steps))
    await yard.carry()
    (leased,) = await yard.queue.lease(pool)
    return await yard.control.claim(leased.command, "w")


def draft(event_type: str = "stage.started") -> Draft:
    return Draft(event_type=event_type, tenant_id="other", organization_id="other", project_id="other",
                 principal="other", producer="noetl://tenant/other", stage_id=7, execution_id=7,
                 aggregate_type="stage")  # fmt: skip


async def test_events_are_those_of_the_stage_whatever_is_said(yard: Yard) -> None:
    hand = await in_hand(yard, "spark", STAGE)
    work = hand.claim.work
    (event,) = await yard.control.append(hand, "stage", [draft()], 0)
    assert work.stage is not None
    stage_id = work.stage["stage_id"]
    assert event.stream_id == f"execution/{work.execution_id}/stage/{stage_id}"
    assert (event.tenant_id, event.execution_id, event.stage_id) == ("default", work.execution_id, stage_id)
    assert event.principal != "other"
    (read,) = await yard.control.log(hand, work.execution_id, stage_id, 0, 10)
    assert read.event == event
    with pytest.raises(VersionConflict):
        await yard.control.append(hand, "stage", [draft()], 0)
    with pytest.raises(InvalidInput, match="not an event of a stage"):
        await yard.control.append(hand, "stage", [draft("playbook.completed")], event.stream_version)
    with pytest.raises(Forbidden):
        await yard.control.log(hand, work.execution_id + 1, stage_id, 0, 10)
    assert await yard.control.look(hand) == "on"
    assert (await yard.control.stage(hand)).origin.tenant_id == "default"


async def test_without_the_command_there_is_nothing(yard: Yard) -> None:
    hand = await in_hand(yard, "spark", STAGE)
    await yard.control.release(hand)
    execution_id = hand.claim.work.execution_id
    with pytest.raises(LeaseLost):
        await yard.control.append(hand, "stage", [draft()], 0)
    with pytest.raises(LeaseLost):
        await yard.control.log(hand, execution_id, 1, 0, 10)
    with pytest.raises(LeaseLost):
        await yard.control.look(hand)
    with pytest.raises(LeaseLost):
        await yard.control.stage(hand)
    with pytest.raises(LeaseLost):
        await yard.control.call(hand, CallRequest(key="k", task="t", input={}, fields={"path": "p"}))


async def test_a_command_that_is_no_stage_has_no_log(yard: Yard) -> None:
    hand = await in_hand(yard, "shared", step("a"))
    with pytest.raises(NotFound, match="no data stage"):
        await yard.control.append(hand, "stage", [draft()], 0)


async def test_a_row_that_calls_hears_what_came_of_it(yard: Yard) -> None:
    hand = await in_hand(yard, "spark", STAGE)
    call = CallRequest(key="k", task="t", input={}, fields={"path": "not/there"})
    said = await yard.control.call(hand, call)
    assert said.error is not None
    assert said.error["code"] == "PLAYBOOK_NOT_FOUND"
    await yard.api.register(book(step("x"), path="inner"))
    call = CallRequest(key="k2", task="t", input={}, fields={"path": "inner"})
    async with yard.working(yard.worker()):
        said = await yard.control.call(hand, call)
        again = await yard.control.call(hand, call)
    assert said.result["status"] == "COMPLETED"
    assert again.result["execution_id"] == said.result["execution_id"]
