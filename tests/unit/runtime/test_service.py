"""Services: taking up what was left, keeping others off, and keeping tenants apart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.errors import NotFound, Unavailable
from noetl.runtime.embedded.hold import take
from noetl.runtime.service import Service, Services, Workplace, open_services
from noetl.runtime.service.freshness import Freshness, Together
from noetl.runtime.service.holding import Holdings
from noetl.runtime.service.shapes import CancelRequest, ExecuteRequest, id_of
from noetl.settings import Settings
from noetl.tools.registry import Registry
from tests.unit.runtime.workshop import FunctionTool, Workshop, asking, book, step


class Gate:
    """A body that waits at its first step until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.calls: list[str] = []

    async def __call__(self, call: Any) -> Any:
        self.calls.append(call.step)
        self.reached.set()
        await self.open.wait()
        return {}


@contextlib.asynccontextmanager
async def serving(shop: Workshop, body: Callable[[Any], Any], **options: Any) -> AsyncIterator[Services]:
    place = Workplace(
        home=shop.scratch, directory=shop.scratch, slots=4,
        registry=lambda: Registry({"python": FunctionTool("python", body)}), **options,
    )  # fmt: skip
    async with open_services(shop.embedded, Settings(), place) as services:
        yield services


async def ended(service: Service, execution_id: str) -> str:
    events = [event.event_type async for event in await service.reading.follow(int(execution_id), 0)]
    return events[-1]


def is_held(shop: Workshop, execution_id: str) -> bool:
    free = take(shop.scratch / "running", execution_id)
    if free is not None:
        free.release()
    return free is None


async def left_running(shop: Workshop, gate: Gate, **more: Any) -> str:
    """An execution whose process has gone."""
    shop.body = gate
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(step("a", "b"), step("b"), **more)))
        await gate.reached.wait()
    gate.reached.clear()
    return str(execution_id)


async def test_what_was_left_running_goes_on(either: Workshop) -> None:
    gate = Gate()
    execution_id = await left_running(either, gate)
    gate.open.set()
    async with serving(either, gate) as services:
        assert await services.take_up() == 1
        service = await services.of("default", "default")
        assert await ended(service, execution_id) == "playbook.completed"
    assert gate.calls == ["a", "a", "b"]
    assert not is_held(either, execution_id)
    await either.prove()


async def test_what_could_not_be_taken_up_is_when_it_is_asked_again(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    first, second = await left_running(shop, gate), await left_running(shop, gate)
    gate.open.set()
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        resume, away = service._runner.resume, [first]

        async def resumed(execution_id: int) -> None:
            if str(execution_id) in away:
                away.remove(str(execution_id))
                raise Unavailable("the ledger is away")
            await resume(execution_id)

        monkeypatch.setattr(service._runner, "resume", resumed)
        with pytest.raises(Unavailable, match="the ledger is away"):
            await services.take_up()
        assert await ended(service, second) == "playbook.completed"
        assert await services.take_up() == 1
        assert await ended(service, first) == "playbook.completed"


async def test_what_another_process_works_on_stays_its_own(shop: Workshop) -> None:
    gate = Gate()
    execution_id = await left_running(shop, gate)
    held = take(shop.scratch / "running", execution_id)
    assert held is not None
    async with serving(shop, gate) as services:
        assert await services.take_up() == 0
        held.release()
        assert await services.take_up() == 1
        assert take(shop.scratch / "running", execution_id) is None
        gate.open.set()
        assert await ended(await services.of("default", "default"), execution_id) == "playbook.completed"


async def test_an_execution_is_held_from_its_beginning_to_its_end(shop: Workshop) -> None:
    gate = Gate()
    await shop.register(book(step("a")))
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        execution_id = (await service.execute(ExecuteRequest(path="t"), "ada")).execution_id
        assert is_held(shop, execution_id)
        gate.open.set()
        await ended(service, execution_id)
        assert not is_held(shop, execution_id)


async def test_there_is_a_limit_to_what_runs_at_once(shop: Workshop) -> None:
    gate = Gate()
    await shop.register(book(step("a")))
    async with serving(shop, gate, most_running=1) as services:
        service = await services.of("default", "default")
        first = await service.execute(ExecuteRequest(path="t"), "ada")
        with pytest.raises(Unavailable, match="1 executions are under way"):
            await service.execute(ExecuteRequest(path="t"), "ada")
        gate.open.set()
        await ended(service, first.execution_id)
        await service.execute(ExecuteRequest(path="t"), "ada")


async def test_draining_finishes_what_runs_and_begins_nothing(shop: Workshop) -> None:
    gate = Gate()
    await shop.register(book(step("a", "b"), step("b")))
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        execution_id = (await service.execute(ExecuteRequest(path="t"), "ada")).execution_id
        await gate.reached.wait()
        draining = asyncio.create_task(services.drain(30))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="going down"):
            await service.execute(ExecuteRequest(path="t"), "ada")
        gate.open.set()
        await draining
        assert gate.calls == ["a"]
        assert (await service.reading.status(int(execution_id))).completed_steps == ["a"]
        with pytest.raises(Unavailable):
            await services.of("other", "default")
    async with serving(shop, gate) as services:
        assert await services.take_up() == 1
        assert await ended(await services.of("default", "default"), execution_id) == "playbook.completed"
    assert gate.calls == ["a", "b"]


async def test_what_does_not_finish_in_time_is_run_again(shop: Workshop) -> None:
    gate = Gate()
    await shop.register(book(step("a")))
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        execution_id = (await service.execute(ExecuteRequest(path="t"), "ada")).execution_id
        await gate.reached.wait()
        await services.drain(0.01)
    gate.open.set()
    async with serving(shop, gate) as services:
        assert await services.take_up() == 1
        assert await ended(await services.of("default", "default"), execution_id) == "playbook.completed"
    assert gate.calls == ["a", "a"]


async def test_organisations_do_not_see_each_other(shop: Workshop) -> None:
    await shop.register(book(step("a")))
    async with serving(shop, lambda _: {}) as services:
        service = await services.of("default", "default")
        execution_id = int((await service.execute(ExecuteRequest(path="t"), "ada")).execution_id)
        for tenant, organization in (("default", "other"), ("other", "default")):
            other = await services.of(tenant, organization)
            assert (await other.reading.executions()).executions == []
            for look in (other.reading.status, other.reading.events, other.results.variables, other.reading.execution):
                with pytest.raises(NotFound, match=str(execution_id)):
                    await look(execution_id)
            assert (await other.cancel(execution_id, CancelRequest(), "eve")).status == "not_found"
            with pytest.raises(NotFound):
                await other.patch(execution_id, {"a": 1}, "eve")
        assert len((await service.reading.executions()).executions) == 1


async def test_whoever_acts_stands_in_the_event(shop: Workshop) -> None:
    gate = Gate()
    await shop.register(book(step("a")))
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        execution_id = int((await service.execute(ExecuteRequest(path="t"), "user:ada")).execution_id)
        await gate.reached.wait()
        await service.patch(execution_id, {"k": 1}, "user:eve")
        await service.cancel(execution_id, CancelRequest(), "user:bob")
        gate.open.set()
    principals = {event.event_type: event.principal for event in await shop.events(execution_id)}
    assert principals["playbook.initialized"] == "user:ada"
    assert principals["ctx.patched"] == "user:eve"
    assert principals["playbook.cancelled"] == "user:bob"
    await shop.prove()


async def test_a_key_finds_an_execution_that_nobody_works_on(shop: Workshop) -> None:
    gate = Gate()
    document = book(step("a"))
    await shop.register(document)
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        first = await service.execute(ExecuteRequest(path="t", idempotency_key="k"), "ada")
        await gate.reached.wait()
    gate.open.set()
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        again = await service.execute(ExecuteRequest(path="t", idempotency_key="k"), "ada")
        assert again.execution_id == first.execution_id
        assert await ended(service, again.execution_id) == "playbook.completed"


async def test_what_another_process_has_ended_is_let_go(shop: Workshop) -> None:
    gate = Gate()
    await shop.register(book(step("a")))
    async with serving(shop, gate) as services:
        service = await services.of("default", "default")
        execution_id = (await service.execute(ExecuteRequest(path="t"), "ada")).execution_id
        assert await shop.driver().cancel(int(execution_id), "elsewhere")
        await service.tidy()
        assert not is_held(shop, execution_id)
        gate.open.set()


class TestHoldings:
    def test_one_that_is_held_is_not_taken_twice(self, tmp_path: Path) -> None:
        mine, others = Holdings(tmp_path, "acme", 5), Holdings(tmp_path, "acme", 5)
        assert mine.take(7)
        assert mine.take(7)
        assert not others.take(7)
        mine.release(7)
        mine.release(7)
        assert others.take(7)
        others.close()

    def test_another_tenant_with_the_same_id_is_not_in_the_way(self, tmp_path: Path) -> None:
        all_of_them = [Holdings(tmp_path, tenant, 5) for tenant in ("default", "acme", "globex")]
        assert all(one.take(7) for one in all_of_them)
        for one in all_of_them:
            one.close()

    def test_closing_lets_go_of_everything(self, tmp_path: Path) -> None:
        mine, others = Holdings(tmp_path, "acme", 5), Holdings(tmp_path, "acme", 5)
        mine.take(7)
        mine.take(8)
        mine.close()
        assert len(mine) == 0
        assert others.take(7)
        assert others.take(8)
        others.close()


class TestTogether:
    async def test_who_asks_meanwhile_shares_the_next_look(self) -> None:
        looks: list[str] = []
        looking, go = asyncio.Event(), asyncio.Event()

        async def look(name: str) -> int:
            looks.append(name)
            looking.set()
            await go.wait()
            return len(looks)

        together = Together(look)
        first = asyncio.create_task(together("a"))
        await looking.wait()
        others = [asyncio.create_task(together("a")) for _ in range(10)]
        await asyncio.sleep(0)
        go.set()
        assert await first == 1
        assert [await other for other in others] == [2] * 10
        assert looks == ["a", "a"]
        assert await together("b") == 3

    async def test_an_error_is_everybodys(self) -> None:
        async def look(name: str) -> int:
            raise NotFound(name)

        together = Together(look)
        found = await asyncio.gather(together("a"), together("a"), return_exceptions=True)
        assert all(isinstance(one, NotFound) for one in found)


async def test_rows_are_as_new_as_the_question(shop: Workshop) -> None:
    freshness = Freshness(shop.embedded.projector, shop.clock)
    finished = await shop.run(book(step("a")))
    await asyncio.gather(*(freshness.now() for _ in range(5)))
    page = await shop.embedded.projections.query("execution", where={"execution_id": finished.execution_id})
    assert len(page.rows) == 1


async def test_rows_follow_the_log_in_its_pauses(shop: Workshop) -> None:
    freshness = Freshness(shop.embedded.projector, shop.clock)
    following = asyncio.create_task(freshness.follow())
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(step("a"))))
        await runner.wait(execution_id)
        freshness.note()
        for _ in range(100):
            await asyncio.sleep(0)
            shop.clock.advance(1)
        reached = await shop.embedded.projections.checkpoint("embedded")
        assert reached == await shop.embedded.ledger.position()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize("value", [-1, 1 << 63, "x", "", "٣", "1.0", "+1"])
def test_what_is_not_an_id(value: Any) -> None:
    from noetl.errors import InvalidInput

    with pytest.raises(InvalidInput, match="is not an id"):
        id_of(value)
