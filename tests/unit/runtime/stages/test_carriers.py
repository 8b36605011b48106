"""Carriers of slots, with a job that is a coroutine of the test's own process."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from noetl.runtime.stages import carriers as carriers_module
from noetl.runtime.stages import spark_task
from noetl.runtime.stages.carriers import GONE, Carriers, Crew, Errand, Lost
from noetl.runtime.stages.door import Door
from noetl.runtime.stages.loopback import Loopback
from noetl.runtime.stages.spark_task import Post

KEY = "the same session"


class Job:
    """A task of Spark, as far as a carrier is concerned."""

    cores = 2

    def __init__(self) -> None:
        self.begun = 0
        self.is_closed = False
        self.fault: BaseException | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, target: str, argument: bytes, schema: str, tasks: int, **_: Any) -> None:
        self.begun += 1
        post = msgspec.json.decode(argument, type=Post)
        running = asyncio.create_task(spark_task._Carrying(post, queue.SimpleQueue()).run())
        self._running.add(running)
        try:
            await running
        except asyncio.CancelledError:
            if self.fault is None:
                raise
            raise self.fault from None
        finally:
            running.cancel()
            self._running.discard(running)

    def kill(self, fault: BaseException) -> None:
        self.fault = fault
        for running in self._running:
            running.cancel()

    async def close(self) -> None:
        self.is_closed = True


class Slots:
    """What runs in a carrier instead of slots."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.over: dict[str, asyncio.Event] = {}
        self.cancelled: list[str] = []

    async def run(self, errand: Errand, _: Any) -> None:
        self.begun.append(errand.worker)
        try:
            await self.over.setdefault(errand.worker, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(errand.worker)
            raise
        if errand.worker.endswith("broken"):
            raise RuntimeError("no such luck")

    def end(self, *workers: str) -> None:
        for worker in workers:
            self.over.setdefault(worker, asyncio.Event()).set()


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Slots:
    made = Slots()
    monkeypatch.setattr(spark_task, "_slots", made.run)
    monkeypatch.setattr(carriers_module, "_LINGER", 0.05)
    return made


class Scene:
    """Carriers behind a real listener."""

    def __init__(self) -> None:
        door = Door()
        self.loopback = Loopback(door)
        self.carriers = Carriers(door)
        self.jobs: list[Job] = []

    async def open_tasks(self) -> tuple[Job, str]:
        self.jobs.append(Job())
        return self.jobs[-1], await self.loopback.url()

    async def run(self, *workers: str) -> Lost | None:
        variables: Mapping[str, str] = {}
        async with self.carriers.crew(KEY, self.open_tasks, variables) as crew:
            return await self.on(crew, *workers)

    async def on(self, crew: Crew, *workers: str) -> Lost | None:
        errands = [Errand(url="", token="", stage_id=1, worker=worker, slots=(0,)) for worker in workers]
        return await crew.run(errands, "slots")


@pytest.fixture
async def scene(slots: Slots) -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    await made.carriers.close()
    await made.loopback.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has nothing to be awaited
            await asyncio.sleep(0.005)


async def test_stages_one_after_the_other_and_at_once_share_the_same_jobs(scene: Scene, slots: Slots) -> None:
    slots.end("a/0", "a/1", "b/0")
    assert await scene.run("a/0", "a/1") is None
    assert await scene.run("b/0") is None
    first, second = asyncio.create_task(scene.run("c/0", "c/1")), asyncio.create_task(scene.run("d/0", "d/1"))
    await until(lambda: len(slots.begun) == 7)
    slots.end("d/0", "d/1")
    assert await second is None
    assert not first.done()
    slots.end("c/0", "c/1")
    assert await first is None
    assert len(scene.jobs) == 1
    assert scene.jobs[0].begun == 2


async def test_when_nobody_comes_they_go_and_the_session_is_given_back(scene: Scene, slots: Slots) -> None:
    slots.end("a/0", "b/0")
    await scene.run("a/0")
    await until(lambda: scene.jobs[0].is_closed)
    await scene.run("b/0")
    assert len(scene.jobs) == 2


async def test_one_that_waits_for_the_next_stage_is_not_sent_away_with_those_of_an_earlier_one(
    scene: Scene, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    linger = 0.4
    monkeypatch.setattr(carriers_module, "_LINGER", linger)
    monkeypatch.setattr(carriers_module, "_MOST_LINGERS", 0)
    slots.end("a/0", "a/1")
    await scene.run("a/0", "a/1")
    stage = asyncio.create_task(scene.run("b/0"))
    await asyncio.sleep(linger * 1.5)  # the second of them goes
    slots.end("b/0")
    await stage
    stage = asyncio.create_task(scene.run("c/0", "c/1"))
    await until(lambda: len(slots.begun) == 5)
    assert scene.jobs[0].begun == 3
    slots.end("c/0")
    await asyncio.sleep(linger * 0.6)
    slots.end("c/1")
    await stage
    await asyncio.sleep(linger * 0.7)  # now the first is gone, too, and with it all that the first stage had
    slots.end("d/0", "d/1")
    assert await scene.run("d/0", "d/1") is None
    assert (len(scene.jobs), scene.jobs[0].begun, scene.jobs[0].is_closed) == (1, 4, False)


async def test_they_stay_no_longer_than_that_after_the_last_stage(
    scene: Scene, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers_module, "_LINGER", 0.4)
    slots.end("a/0", "a/1")
    variables: Mapping[str, str] = {}
    async with scene.carriers.crew(KEY, scene.open_tasks, variables) as crew:
        await scene.on(crew, "a/0", "a/1")
        await asyncio.sleep(0.05)  # a stage has something to write when its slots are done
    begun = asyncio.get_running_loop().time()
    await asyncio.sleep(0.2)
    assert not scene.jobs[0].is_closed
    await until(lambda: scene.jobs[0].is_closed)
    assert asyncio.get_running_loop().time() - begun < 0.7, "not twice as long"


async def test_one_stays_for_a_while_after_its_own_slots_where_others_have_some(scene: Scene, slots: Slots) -> None:
    slots.end("a/1", "b/0", "b/1", "c/0", "c/1")
    stage = asyncio.create_task(scene.run("a/0", "a/1"))
    await asyncio.sleep(0.15)  # three times what it stays alone
    assert await scene.run("b/0", "b/1") is None
    assert scene.jobs[0].begun == 2
    await asyncio.sleep(0.6)  # and now it gives its core to others
    assert await scene.run("c/0", "c/1") is None
    assert scene.jobs[0].begun == 3
    slots.end("a/0")
    assert await stage is None


@pytest.mark.parametrize("turns", range(12))
async def test_a_stage_that_comes_when_a_carrier_is_about_to_go_is_carried_by_another(
    turns: int, scene: Scene, slots: Slots
) -> None:
    slots.end("a/0", "b/0")
    await scene.run("a/0")
    (crew,) = scene.carriers._crews.values()
    (carrier,) = crew._carriers.values()

    async def goes() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        if not carrier._carried:
            carrier.is_over = True  # as it is when it was told to go, and does
            carrier._job.cancel()

    going = asyncio.create_task(goes())
    assert await scene.run("b/0") is None
    await going


async def test_a_stage_that_is_cancelled_stops_its_own_slots_only(scene: Scene, slots: Slots) -> None:
    first, second = asyncio.create_task(scene.run("a/0")), asyncio.create_task(scene.run("b/0"))
    await until(lambda: len(slots.begun) == 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await until(lambda: slots.cancelled == ["a/0"])
    slots.end("b/0")
    assert await second is None


async def test_code_that_does_not_listen_is_ended_with_its_process(
    scene: Scene, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = asyncio.Event()

    async def run(errand: Errand, _: Any) -> None:
        slots.begun.append(errand.worker)
        while not deaf.is_set():
            try:
                await deaf.wait()
            except asyncio.CancelledError:
                continue

    monkeypatch.setattr(spark_task, "_slots", run)
    monkeypatch.setattr(carriers_module, "_PATIENCE", 0.05)
    first, second = asyncio.create_task(scene.run("a/0")), asyncio.create_task(scene.run("b/0"))
    await until(lambda: len(slots.begun) == 2)
    first.cancel()
    asyncio.get_running_loop().call_later(0.2, deaf.set)  # a process that is killed goes; this one has to be let go
    with pytest.raises(asyncio.CancelledError):
        await first
    lost = await second
    assert lost is not None
    assert lost.told is GONE


async def test_a_job_that_fails_is_told_to_every_stage_and_the_next_one_has_a_new_session(
    scene: Scene, slots: Slots
) -> None:
    first, second = asyncio.create_task(scene.run("a/0", "a/1")), asyncio.create_task(scene.run("b/0"))
    await until(lambda: len(slots.begun) == 3)
    scene.jobs[0].kill(RuntimeError("Python worker exited unexpectedly"))
    for lost in (await first, await second):
        assert lost is not None
        assert "exited unexpectedly" in lost.told.message
    slots.end("c/0")
    assert await scene.run("c/0") is None
    assert len(scene.jobs) == 2
    await until(lambda: scene.jobs[0].is_closed)


async def test_slots_that_fail_say_why_and_the_carrier_goes_on(scene: Scene, slots: Slots) -> None:
    other = asyncio.create_task(scene.run("a/0"))
    slots.end("a/broken")
    lost = await scene.run("a/broken")
    assert lost is not None
    assert lost.told.message == "RuntimeError: no such luck"
    assert "Traceback" in lost.told.detail
    slots.end("a/0")
    assert await other is None


async def test_an_answer_that_got_lost_is_given_again(scene: Scene, slots: Slots) -> None:
    async with scene.carriers.crew(KEY, scene.open_tasks, {}) as crew:
        running = asyncio.create_task(scene.on(crew, "a/0"))
        await until(lambda: slots.begun == ["a/0"])
        (carrier,) = crew._carriers.values()
        again = msgspec.json.decode(await carrier._answer(b'{"held": []}'))
        assert [errand["worker"] for errand in again["errands"]] == ["a/0"]
        slots.end("a/0")
        assert await running is None


async def test_a_request_that_was_given_up_does_not_send_the_carrier_away(
    scene: Scene, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers_module, "_SILENCE", 0.3)
    monkeypatch.setattr(carriers_module, "_LINGER", 30.0)
    async with scene.carriers.crew(KEY, scene.open_tasks, {}) as crew:
        running = asyncio.create_task(scene.on(crew, "a/0"))
        await until(lambda: slots.begun == ["a/0"])
        (carrier,) = crew._carriers.values()
        await until(lambda: carrier._round == 2)  # it waits for news now, beside its errand
        slots.end("a/0")
        assert await running is None  # so it has given that request up, and asked again
        await asyncio.sleep(0.5)
        assert not carrier.is_over
