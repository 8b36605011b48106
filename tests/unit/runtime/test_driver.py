"""The driver: a report and all that follows from it are one append, and the log alone can take its place."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from noetl.adapters.memory.leases import MemoryLeases
from noetl.engine.decide import Report
from noetl.errors import InvalidDocument, InvalidInput, NotFound, Unavailable
from noetl.observe import metrics
from noetl.observe.prometheus import PrometheusRecorder
from noetl.playbook.kinds import KINDS
from noetl.playbook.split import documents_of
from noetl.ports.leases import Lease, LeasesLost
from noetl.runtime.claims import InTurn
from noetl.runtime.driver import Driver, Issued
from noetl.runtime.fence import Hold
from tests.simulation.runtime.claims import AtOnce
from tests.unit.playbook.documents import GUIDE
from tests.unit.runtime.workshop import ORIGIN, Workshop, asking, book, plain, step

CHAIN = book(step("a", "b"), step("b", "c"), step("c"))


async def reloaded(shop: Workshop, driver: Driver, execution_id: int) -> None:
    """What the driver has in memory is what another one reads from the log."""
    live, again = await driver.execution(execution_id), await shop.driver().execution(execution_id)
    assert plain(live.control) == plain(again.control)
    assert (live.version, live.commands, live.items) == (again.version, again.commands, again.items)
    assert live.stages == again.stages
    assert live.iterations == again.iterations


async def finish_one(shop: Workshop, driver: Driver, execution_id: int, result: Any = None) -> bool:
    """Report the oldest command in flight; False when there is none."""
    waiting = await driver.pending(execution_id)
    if not waiting:
        return False
    command = waiting[0]
    said = result(command) if callable(result) else result
    assert await driver.report(execution_id, Report(command_id=command.command_id, result=said or {}))
    await reloaded(shop, driver, execution_id)
    return True


async def test_a_step_costs_one_append(either: Workshop) -> None:
    driver = either.driver()
    execution_id = await driver.start(asking(CHAIN))
    while await finish_one(either, driver, execution_id):
        pass
    assert len(either.ledger.appends) == 4
    assert [event.event_type for event in either.ledger.appends[1]] == [
        "command.claimed", "command.started", "step.enter", "call.done", "step.exit", "command.completed",
        "command.issued",
    ]  # fmt: skip
    await either.prove()


async def test_reports_that_come_together_share_an_append(either: Workshop) -> None:
    loop = step(
        "each", loop={"in": list(range(40)), "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 40}}
    )
    driver = either.driver()
    execution_id = await driver.start(asking(book(loop)))
    waiting = await driver.pending(execution_id)
    assert len(waiting) == 40
    taken = await asyncio.gather(
        *(driver.report(execution_id, Report(command_id=one.command_id, result=n)) for n, one in enumerate(waiting))
    )
    assert taken == [True] * 40
    assert len(either.ledger.appends) < 5
    execution = await driver.execution(execution_id)
    assert execution.control.ended == "COMPLETED"
    assert execution.control.steps["each"].result["context"]["results"] == list(range(40))
    await reloaded(either, driver, execution_id)
    await either.prove()


async def taken(leases: MemoryLeases, command_id: int, owner: str = "worker") -> Lease:
    lease = await leases.take(f"command/{command_id}", owner, seconds=60)
    assert lease is not None
    return lease


@pytest.mark.parametrize("kind", [InTurn, AtOnce])
async def test_of_reports_that_come_together_one_may_be_void(either: Workshop, kind: type[InTurn]) -> None:
    """Whether its worker may still make it is only known when all of them are decided."""
    loop = step("each", loop={"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 3}})
    driver = either.driver()
    execution_id = await driver.start(asking(book(loop)))
    commands = [issued.command_id for issued in await driver.pending(execution_id)]
    leases = MemoryLeases(either.clock)
    claims = kind(leases, either.ledger)
    holds = [Hold(claims, await taken(leases, one)) for one in commands]
    await leases.release(holds[1].lease)
    another = await taken(leases, commands[1], "another")
    answers = await asyncio.gather(
        *(
            driver.report(execution_id, Report(command_id=one, result=n), hold)
            for n, (one, hold) in enumerate(zip(commands, holds, strict=True))
        ),
        return_exceptions=True,
    )
    assert (answers[0], answers[2]) == (True, True)
    assert isinstance(answers[1], LeasesLost)
    assert list(answers[1].leases) == [holds[1].lease]
    left = [await leases.holder(hold.lease.name) for hold in holds]
    kept = [None, None] if claims.gives_back else [holds[0].lease, holds[2].lease]
    assert left == [kept[0], another, kept[1]]
    assert [issued.command_id for issued in await driver.pending(execution_id)] == [commands[1]]
    await reloaded(either, driver, execution_id)
    assert await driver.report(execution_id, Report(command_id=commands[1], result="mine"), Hold(claims, another))
    final = (await driver.execution(execution_id)).control.steps["each"].result["context"]
    assert final["results"] == [0, "mine", 2]
    await either.prove()


async def test_nothing_is_stored_for_a_void_report(shop: Workshop) -> None:
    driver = shop.driver()
    execution_id = await driver.start(asking(book(step("a"))))
    (command_id,) = [issued.command_id for issued in await driver.pending(execution_id)]
    kept = [found.key async for found in shop.embedded.objects.list("")]
    leases = MemoryLeases(shop.clock)
    hold = Hold(InTurn(leases, shop.ledger), await taken(leases, command_id))
    await leases.release(hold.lease)
    void = Report(command_id=command_id, result={"text": "x" * 200_000})
    with pytest.raises(LeasesLost, match=f"'command/{command_id}' of 'worker'"):
        await driver.report(execution_id, void, hold)
    assert [found.key async for found in shop.embedded.objects.list("")] == kept
    assert len(shop.ledger.appends) == 1
    assert await driver.report(execution_id, void)


async def test_a_void_report_that_nobody_awaits_is_void_all_the_same(shop: Workshop) -> None:
    driver = shop.driver()
    execution_id = await driver.start(asking(book(step("a"))))
    (command_id,) = [issued.command_id for issued in await driver.pending(execution_id)]
    leases = MemoryLeases(shop.clock)
    hold = Hold(AtOnce(leases, shop.ledger), await taken(leases, command_id))
    assert await driver.report(execution_id, Report(command_id=command_id, result=1), hold)
    with pytest.raises(LeasesLost):
        await driver.report(execution_id, Report(command_id=command_id, result=2), hold)
    again = Hold(hold.claims, await taken(leases, command_id))
    assert not await driver.report(execution_id, Report(command_id=command_id, result=3), again)
    assert await leases.holder(again.lease.name) == again.lease, "nothing was written, so nothing was given back"


async def test_what_a_void_report_would_end_replaces_no_result(shop: Workshop) -> None:
    """The result of a loop is stored where the loop is, before it is known whether the end of the loop counts."""
    loop = step("each", loop={"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 2}})
    ours, theirs = shop.driver(), shop.driver()
    execution_id = await ours.start(asking(book(loop)))
    first, last = [issued.command_id for issued in await ours.pending(execution_id)]
    assert await ours.report(execution_id, Report(command_id=first, result="x" * 40_000))
    await theirs.latest(execution_id)
    leases = MemoryLeases(shop.clock)
    hold = Hold(AtOnce(leases, shop.ledger), await taken(leases, last))
    assert await ours.report(execution_id, Report(command_id=last, result="mine"), hold)
    with pytest.raises(LeasesLost):
        await theirs.report(execution_id, Report(command_id=last, result="theirs"), hold)
    whole = await ours.keeper.result_of(await ours.execution(execution_id), "each")
    assert whole["results"] == ["x" * 40_000, "mine"]
    await shop.prove()


async def test_a_report_counts_once(either: Workshop) -> None:
    driver = either.driver()
    execution_id = await driver.start(asking(CHAIN))
    first = (await driver.pending(execution_id))[0].command_id
    answers = await asyncio.gather(
        *(driver.report(execution_id, Report(command_id=first, result={"n": n})) for n in range(3))
    )
    assert answers == [True, False, False]
    assert not await driver.report(execution_id, Report(command_id=first, result={"late": True}))
    assert not await driver.report(execution_id, Report(command_id=12345))
    assert (await driver.execution(execution_id)).control.steps["a"].result["context"] == {"n": 0}
    assert len(either.ledger.appends) == 2


async def test_a_driver_that_was_overtaken_looks_again(either: Workshop) -> None:
    """Both have the execution in memory; one moves on, and the other's next decision is made on what it finds."""
    one, other = either.driver(), either.driver()
    execution_id = await one.start(asking(CHAIN))
    first = (await other.pending(execution_id))[0].command_id
    assert await one.report(execution_id, Report(command_id=first))
    assert not await other.report(execution_id, Report(command_id=first, result={"stale": True}))
    for driver in (other, one, other):
        await driver.latest(execution_id)
        await reloaded(either, driver, execution_id)
        for command in await driver.pending(execution_id):
            await driver.report(execution_id, Report(command_id=command.command_id))
    assert (await either.driver().execution(execution_id)).control.ended == "COMPLETED"
    assert (await either.types(execution_id)).count("step.exit") == 3
    await either.prove()


async def test_a_conflict_decides_everything_that_waited_again(shop: Workshop) -> None:
    loop = step("each", loop={"in": [1, 2, 3, 4], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 4}})
    one, other = shop.driver(), shop.driver()
    execution_id = await one.start(asking(book(loop)))
    commands = [issued.command_id for issued in await other.pending(execution_id)]
    await one.report(execution_id, Report(command_id=commands[0], result=0))
    answers = await asyncio.gather(
        *(other.report(execution_id, Report(command_id=command, result=n)) for n, command in enumerate(commands))
    )
    assert answers == [False, True, True, True]
    final = (await other.execution(execution_id)).control.steps["each"].result["context"]
    assert final["results"] == [0, 1, 2, 3]
    await shop.prove()


async def test_the_same_key_is_the_same_execution(either: Workshop) -> None:
    driver = either.driver()
    first = await driver.start(asking(CHAIN, key="daily"))
    assert await driver.start(asking(CHAIN, key="daily")) == first
    assert await either.driver().start(asking(CHAIN, key="daily")) == first
    assert await driver.start(asking(CHAIN, key="weekly")) != first
    assert await driver.start(asking(CHAIN)) != first


async def test_a_race_for_a_key_has_one_winner(either: Workshop) -> None:
    drivers = [either.driver() for _ in range(6)]
    found = await asyncio.gather(*(driver.start(asking(CHAIN, key="daily")) for driver in drivers))
    assert len(set(found)) == 1
    assert len(either.ledger.appends) == 1


async def test_an_invalid_document_begins_nothing(shop: Workshop) -> None:
    with pytest.raises(InvalidDocument):
        await shop.driver().start(asking("kind: Playbook"))
    with pytest.raises(InvalidInput, match="no step 'nowhere'"):
        await shop.driver().start(asking(CHAIN, entry="nowhere"))
    assert shop.ledger.appends == []


async def test_an_unknown_execution_is_not_found(shop: Workshop) -> None:
    driver = shop.driver()
    for attempt in (driver.execution(5), driver.report(5, Report(command_id=1)), driver.cancel(5, "why")):
        with pytest.raises(NotFound, match="no execution 5"):
            await attempt


async def test_the_entry_of_a_request_holds_after_a_reload(shop: Workshop) -> None:
    driver = shop.driver()
    usual = await driver.start(asking(CHAIN))
    later = await driver.start(asking(CHAIN, entry="b"))
    again = shop.driver()
    assert (await again.execution(usual)).playbook.entry == "a"
    assert (await again.execution(later)).playbook.entry == "b"
    assert [issued.step for issued in await again.pending(later)] == ["b"]


async def test_a_ledger_that_is_gone_leaves_nobody_waiting(shop: Workshop) -> None:
    """All who wait hear of it; what was decided and not written is forgotten, and works once the ledger is back."""
    loop = step("each", loop={"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 3}})
    driver = shop.driver()
    execution_id = await driver.start(asking(book(loop)))
    commands = [issued.command_id for issued in await driver.pending(execution_id)]

    async def gone() -> None:
        raise Unavailable("the disk is full")

    shop.ledger.before_append = gone
    reports = [Report(command_id=command, result=n) for n, command in enumerate(commands)]
    failures = await asyncio.gather(
        *(driver.report(execution_id, report) for report in reports), return_exceptions=True
    )
    assert [type(failure) for failure in failures] == [Unavailable] * 3
    with pytest.raises(Unavailable):
        await driver.cancel(execution_id, "why")
    shop.ledger.before_append = None
    await reloaded(shop, driver, execution_id)
    assert await asyncio.gather(*(driver.report(execution_id, report) for report in reports)) == [True] * 3
    assert (await driver.execution(execution_id)).control.ended == "COMPLETED"


async def test_a_report_whose_caller_gives_up_keeps_nobody_else_waiting(shop: Workshop) -> None:
    both = book(
        step("a", next={"spec": {"mode": "inclusive"}, "arcs": [{"step": "b"}, {"step": "c"}]}), step("b"), step("c")
    )
    driver = shop.driver()
    execution_id = await driver.start(asking(both))
    await finish_one(shop, driver, execution_id)
    held, let_go = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        held.set()
        await let_go.wait()

    shop.ledger.before_append = slow
    first, second = [Report(command_id=issued.command_id) for issued in await driver.pending(execution_id)]
    gives_up = asyncio.create_task(driver.report(execution_id, first))
    patient = asyncio.create_task(driver.report(execution_id, second))
    await held.wait()
    shop.ledger.before_append = None
    gives_up.cancel()
    assert await patient
    assert gives_up.cancelled() or await asyncio.gather(gives_up, return_exceptions=True)
    await reloaded(shop, driver, execution_id)


async def test_an_execution_that_left_memory_is_read_again(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.runtime.driver._KEPT", 2)
    driver = shop.driver()
    running = [await driver.start(asking(CHAIN)) for _ in range(5)]
    while any([await finish_one(shop, driver, execution_id) for execution_id in running]):
        pass
    for execution_id in running:
        assert (await driver.execution(execution_id)).control.ended == "COMPLETED"
    await shop.prove()


async def test_cancelling_ends_it_once(either: Workshop) -> None:
    issued: list[Issued] = []
    driver = either.driver(issued)
    execution_id = await driver.start(asking(CHAIN))
    other = either.driver()
    assert await other.cancel(execution_id, "wrong day")
    assert not await other.cancel(execution_id, "again")
    assert not await driver.cancel(execution_id, "and again")
    assert await driver.report(execution_id, Report(command_id=issued[0].command_id, result={"x": "y" * 100_000}))
    assert (await either.types(execution_id))[-4:] == [
        "playbook.cancelled", "command.claimed", "command.started", "command.cancelled",
    ]  # fmt: skip
    assert [one.step for one in issued] == ["a"]
    assert await driver.pending(execution_id) == []
    await either.prove()


def documents() -> dict[str, str]:
    """Every playbook of the language guide."""
    parts = [part for file in GUIDE for part in documents_of(file.read_text(encoding="utf-8"))]
    named = {re.search(r"name: (\w+)", part)[1]: part for part in parts}  # type: ignore[index]  # each has a name
    return {name: part for name, part in named.items() if "kind: Playbook" in part}


ANSWERS: dict[str, Any] = {
    "start": {"over": True, "value": 4},
    "price": {"each": 40},
    "stock": {"left": 3},
    "load": {"ref": "noetl://default/default/datasets/totals"},
}


@pytest.mark.parametrize("name", documents())
async def test_memory_and_log_agree_after_every_step(name: str, shop: Workshop) -> None:
    driver = shop.driver()
    execution_id = await driver.start(asking(documents()[name]))
    await reloaded(shop, driver, execution_id)
    while await finish_one(shop, driver, execution_id, lambda issued: ANSWERS.get(issued.step, {"n": 1})):
        pass
    assert (await driver.execution(execution_id)).control.ended == "COMPLETED"
    await shop.prove()


@pytest.mark.parametrize("name", documents())
async def test_two_who_take_turns_know_the_same_after_every_step(name: str, shop: Workshop) -> None:
    """What one has decided the other reads from the log, and goes on with as if it had decided it itself."""
    drivers = [shop.driver(), shop.driver()]
    execution_id = await drivers[0].start(asking(documents()[name]))
    turn = 0
    while await finish_one(shop, drivers[turn % 2], execution_id, lambda issued: ANSWERS.get(issued.step, {"n": 1})):
        turn += 1
        await drivers[turn % 2].latest(execution_id)
        await reloaded(shop, drivers[turn % 2], execution_id)
    assert (await drivers[turn % 2].latest(execution_id)).control.ended == "COMPLETED"
    await shop.prove()


async def test_a_loop_whose_reports_go_to_two_drivers_in_turn_is_read_once(shop: Workshop) -> None:
    loop = {"in": list(range(40)), "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 8}}
    recorder = PrometheusRecorder()
    metrics.install(recorder)
    try:
        drivers = [shop.driver(), shop.driver()]
        execution_id = await drivers[0].start(asking(book(step("each", loop=loop))))
        for number in range(40):
            driver = drivers[number % 2]
            command = (await drivers[0].pending(execution_id))[0]
            large = "x" * 70_000 if number % 7 == 0 else number
            assert await driver.report(execution_id, Report(command_id=command.command_id, result=large))
    finally:
        metrics.uninstall()
    found = await shop.driver().execution(execution_id)
    assert found.control.ended == "COMPLETED"
    assert "noetl_driver_conflicts_total 1.0" in recorder.text().decode()  # after that it looks before it decides
    await reloaded(shop, drivers[1], execution_id)
    await shop.prove()


async def test_an_id_that_two_have_drawn_belongs_to_one(shop: Workshop) -> None:
    ids = iter([7, 7, 8])

    def drawing() -> Driver:
        keeper = shop.embedded.keeper(ORIGIN.project_id)
        return Driver(shop.ledger, keeper, shop.clock, ORIGIN, lambda: next(ids), lambda _: None, KINDS)

    assert [await drawing().start(asking(CHAIN)) for _ in range(2)] == [7, 8]


async def test_finished_work_leaves_nothing_behind_in_memory(shop: Workshop) -> None:
    loop = {"in": "{{ numbers }}", "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 10}}
    driver = shop.driver()
    execution_id = await driver.start(asking(book(step("each", loop=loop), workload={"numbers": list(range(300))})))
    execution = await driver.execution(execution_id)
    while waiting := await driver.pending(execution_id):
        assert len(waiting) <= 10
        assert len(execution.commands) == len(waiting)
        await asyncio.gather(
            *(driver.report(execution_id, Report(command_id=issued.command_id, result=1)) for issued in waiting)
        )
    assert (execution.commands, execution.items, execution.iterations) == ({}, {}, {})
    assert execution.control.commands == {}
    assert execution.control.loops == {}
    assert execution.control.tokens == {}
