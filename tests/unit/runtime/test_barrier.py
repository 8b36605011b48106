"""The barrier: what has had its effect is adopted by whoever gets its command again, and nothing else is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.credentials import MemoryCredentials
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.engine.decide import Report, Suspension
from noetl.engine.pipeline import RunTask
from noetl.errors import Unavailable
from noetl.kernel.event import Json
from noetl.kernel.names import Home
from noetl.observe import metrics
from noetl.payloads.effects import Effect, EffectStore
from noetl.ports.credentials import Credential
from noetl.runtime.notices import Notice
from noetl.runtime.vault import Vault
from noetl.runtime.worker import Work, Worker, place_of
from noetl.tools.base import Call, Outcome, ok
from noetl.tools.noop import NoopTool
from noetl.tools.registry import Registry
from tests.scribe import START
from tests.unit.runtime.test_worker import work
from tests.unit.runtime.workshop import Failed, FunctionTool, book, step

HOME = Home(env="dev", region="local", cell="local-a")
EXECUTION = 287_011_189_555_228_672
NOW = "2026-03-02T08:00:00.000000Z"
SECRET = "not-a-real-token"


class Killed(BaseException):
    """The worker is no more."""


class Counted:
    """Counts what the barrier says of itself."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()

    def count(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        if name == "noetl_effect_barrier_total":
            self.outcomes[labels[0]] += int(amount)

    def observe(self, name: str, value: float, labels: tuple[str, ...]) -> None:
        """Nothing to count."""

    def shift(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        """Nothing to count."""


class Bench:
    """A worker behind the barrier. Every `deliver` is another worker with the same command."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock(START)
        self.objects = MemoryObjectStore()
        self.effects = EffectStore(self.objects)
        self.calls: list[str] = []
        self.body: Callable[[Call], Any] = lambda call: {"of": call.task}
        self.vault: Vault | None = None
        self.notices: list[Notice] = []
        self._directory = directory

    async def deliver(self, document: Json, **more: Any) -> Report:
        registry = Registry({"python": FunctionTool("python", self._run), "noop": NoopTool()})
        worker = Worker(
            registry, self.clock, _no_calls, self._directory, self._directory, self.vault, None, self.notices.append,
            self.effects,
        )  # fmt: skip
        said = await worker.run(work_of(document, **more), lambda: NOW)
        assert isinstance(said, Report)
        return said

    async def kill(self, document: Json, at: str, **more: Any) -> None:
        """Deliver, and let the worker die when it comes to a task."""
        body = self.body

        def dying(call: Call) -> Any:
            if call.task == at:
                raise Killed
            return body(call)

        self.body = dying
        with pytest.raises(Killed):
            await self.deliver(document, **more)
        self.body = body

    def _run(self, call: Call) -> Any:
        self.calls.append(call.task)
        return self.body(call)

    async def keys(self) -> list[str]:
        return [info.key.rpartition("/")[2] async for info in self.objects.list()]


async def _no_calls(_: Work, __: RunTask) -> Json | Outcome:
    raise AssertionError("nothing is called here")


def work_of(document: Json, **more: Any) -> Work:
    made = work(document, home=HOME, **more)
    return Work(**{name: getattr(made, name) for name in made.__struct_fields__} | {"execution_id": EXECUTION})


def task(name: str, *rules: Json, **more: Any) -> Json:
    spec = {**more.pop("spec", {}), **({"policy": {"rules": list(rules)}} if rules else {})}
    return {"name": name, "kind": "python", "code": "pass", "spec": spec, **more}


def pipeline(*tasks: Json) -> Json:
    return book(step("pay", tool=list(tasks)))


THREE = pipeline(task("one"), task("two"), task("three"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def counted() -> Iterator[Counted]:
    counted = Counted()
    metrics.install(counted)
    yield counted
    metrics.uninstall()


async def test_what_was_done_before_a_kill_is_not_done_again(bench: Bench, counted: Counted) -> None:
    await bench.kill(THREE, at="three")
    report = await bench.deliver(THREE)
    assert bench.calls == ["one", "two", "three", "three"]
    assert report.result["results"] == {name: {"of": name} for name in ("one", "two", "three")}
    assert counted.outcomes == {"stored": 3, "adopted": 2}


async def test_a_command_that_was_done_whole_calls_nothing(bench: Bench) -> None:
    first, second = await bench.deliver(THREE), await bench.deliver(THREE)
    assert bench.calls == ["one", "two", "three"]
    assert second.result == first.result
    assert second.detail["output"]["meta"] == {**first.detail["output"]["meta"], "adopted": True}
    assert "adopted" not in first.detail["output"]["meta"]


async def test_who_adopts_says_so(bench: Bench) -> None:
    await bench.deliver(THREE)
    bench.notices.clear()
    await bench.deliver(THREE)
    assert [(one.what, one.stream, one.task) for one in bench.notices] == [
        ("log", "noetl", name) for name in ("one", "two", "three")
    ]
    assert "is not run again" in bench.notices[0].text


async def test_rules_and_assignments_see_what_was_adopted_like_any_other_outcome(bench: Bench) -> None:
    document = pipeline(
        task("one", set={"ctx.seen": "{{ output.data.of }}", "ctx.old": "{{ output.meta.adopted | default(false) }}"}),
        task("two", input={"given": "{{ one.of }}"}),
    )
    bench.body = lambda call: {"of": call.task, **call.input}
    await bench.kill(document, at="two")
    report = await bench.deliver(document)
    assert report.set == {"ctx.seen": "one", "ctx.old": True}
    assert report.result["given"] == "one"


async def test_an_error_is_never_kept(bench: Bench) -> None:
    def fail(_: Call) -> Any:
        raise Failed("no")

    bench.body = fail
    document = pipeline(task("one"))
    assert (await bench.deliver(document)).error is not None
    assert await bench.keys() == []
    bench.body = lambda _: {"good": True}
    assert (await bench.deliver(document)).result["good"] is True


async def test_a_retry_keeps_the_key_and_its_outcome_is_adopted(bench: Bench) -> None:
    again = {"when": "{{ output.status == 'error' }}", "then": {"do": "retry", "attempts": 5}}
    document = pipeline(task("one", again), task("two"))

    def unsteady(call: Call) -> Any:
        if call.task == "one" and call.attempt < 3:
            raise Failed("not yet")
        return {"attempt": call.attempt}

    bench.body = unsteady
    await bench.kill(document, at="two")
    assert bench.calls == ["one"] * 3 + ["two"]
    report = await bench.deliver(document)
    assert bench.calls == ["one"] * 3 + ["two"] * 2
    assert report.result["results"]["one"] == {"attempt": 3}


async def test_the_attempt_of_an_adopted_outcome_is_the_one_that_had_it(bench: Bench) -> None:
    again = {"when": "{{ output.status == 'error' }}", "then": {"do": "retry", "attempts": 5}}
    document = pipeline(task("one", again))

    def unsteady(call: Call) -> Any:
        if call.attempt < 2:
            raise Failed("not yet")
        return {}

    bench.body = unsteady
    await bench.deliver(document)
    assert (await bench.deliver(document)).detail["output"]["meta"]["attempt"] == 2


async def test_a_poll_goes_on_where_it_was(bench: Bench, counted: Counted) -> None:
    """A rule asks again although it went well: what was answered so far is adopted, in order, and then asked on."""
    more = {"when": "{{ output.data.n < 3 }}", "then": {"do": "retry", "attempts": 9}}
    document = pipeline(task("poll", more), task("two"))
    answers = iter(range(1, 9))
    bench.body = lambda call: {"n": next(answers)} if call.task == "poll" else {}
    await bench.kill(document, at="two")
    report = await bench.deliver(document)
    assert bench.calls == ["poll"] * 3 + ["two"] * 2
    assert report.result["results"]["poll"] == {"n": 3}
    kept = [f"effect~{name}.bin" for name in ("poll.1", "poll.1~2", "poll.1~3", "two.1")]
    assert await bench.keys() == kept
    assert counted.outcomes == {"stored": 4, "adopted": 3}


async def test_a_jump_back_is_another_effect(bench: Bench) -> None:
    back = {"when": "{{ (iter.n | default(1)) | int < 3 }}",
            "then": {"do": "jump", "to": "one", "set": {"iter.n": "{{ (iter.n | default(1)) + 1 }}"}}}  # fmt: skip
    document = pipeline(task("one"), task("two", back), task("three"))
    numbers = iter(range(99))
    bench.body = lambda _: {"n": next(numbers)}
    await bench.kill(document, at="three")
    assert bench.calls == ["one", "two"] * 3 + ["three"]
    report = await bench.deliver(document)
    assert bench.calls == ["one", "two"] * 3 + ["three"] * 2
    assert report.result["results"]["two"] == {"n": 5}


@pytest.mark.parametrize("other", [{"run": 2}, {"index": 0, "length": 2}], ids=["a re-entry", "an iteration"])
async def test_another_run_or_iteration_is_another_effect(other: Json, bench: Bench) -> None:
    looped = book(step("pay", tool=[task("one")], loop={"in": [1, 2], "iterator": "n"}))
    await bench.deliver(looped)
    await bench.deliver(looped, **other)
    assert bench.calls == ["one", "one"]


async def test_a_task_without_effects_is_left_alone(bench: Bench, counted: Counted) -> None:
    document = pipeline(task("one", spec={"side_effecting": False}), {"name": "two", "kind": "noop"})
    await bench.deliver(document)
    await bench.deliver(document)
    assert bench.calls == ["one", "one"]
    assert await bench.keys() == []
    assert counted.outcomes == {"skipped": 4}


async def test_an_author_may_have_a_harmless_kind_guarded(bench: Bench) -> None:
    await bench.deliver(pipeline({"name": "two", "kind": "noop", "spec": {"side_effecting": True}}))
    assert await bench.keys() == ["effect~two.1.bin"]


async def test_of_two_workers_the_first_durable_outcome_counts(bench: Bench, counted: Counted) -> None:
    """Whoever was slow and comes second goes on with what the other has done."""
    document = pipeline(task("one"))

    async def overtaken(call: Call) -> Any:
        asked = RunTask(task=playbook.step.tasks[0], input={}, fields={}, auth=None, timeout=None, attempt=1, visit=1)
        await bench.effects.keep(place_of(playbook, asked), HOME, Effect(result={"by": "another"}))
        return {"by": "me"}

    playbook = work_of(document)
    bench.body = overtaken
    report = await bench.deliver(document)
    assert report.result["by"] == "another"
    assert report.detail["output"]["meta"]["adopted"] is True
    assert counted.outcomes == {"raced": 1}
    assert "another worker" in bench.notices[-1].text


async def test_a_damaged_outcome_fails_the_task_and_calls_nothing(bench: Bench, counted: Counted) -> None:
    document = pipeline(task("one"))
    await bench.deliver(document)
    (info,) = [info async for info in bench.objects.list()]
    await bench.objects.put(info.key, b"damaged", overwrite=True)
    error = (await bench.deliver(document)).error
    assert bench.calls == ["one"]
    assert error is not None
    assert (error["code"], error["kind"], error["retryable"]) == ("EFFECT_DAMAGED", "storage_access", False)
    assert info.key in error["message"]
    assert counted.outcomes == {"stored": 1, "damaged": 1}


async def test_an_outcome_that_cannot_be_kept_is_not_reported(bench: Bench) -> None:
    async def full(*_: Any, **__: Any) -> bool:
        raise Unavailable("the bucket does not answer")

    bench.objects.put = full  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="does not answer"):
        await bench.deliver(THREE)
    assert bench.calls == ["one"]


async def test_an_outcome_with_a_secret_in_it_is_not_kept(bench: Bench) -> None:
    """Neither may it lie there, nor would it be what later tasks have seen."""
    store = MemoryCredentials(bench.clock)
    await store.put("default", Credential(name="crm", type="bearer", data={"token": SECRET}))
    bench.vault = Vault(store, bench.clock, "default", {})
    bench.body = lambda call: {"header": f"Bearer {call.auth['token']}"} if call.auth else {}
    document = pipeline(task("one", auth="crm"), task("two"))
    await bench.kill(document, at="two")
    assert await bench.keys() == []
    await bench.deliver(document)
    assert bench.calls == ["one", "two", "one", "two"]
    assert await bench.keys() == ["effect~two.1.bin"]


async def test_a_suspension_is_nothing_to_keep(bench: Bench, tmp_path: Path) -> None:
    async def prepared(_: Work, __: RunTask) -> Json | Outcome:
        return {"path": "child"}

    registry = Registry({"python": FunctionTool("python", lambda _: ok({}).result)})
    worker = Worker(registry, bench.clock, prepared, tmp_path, tmp_path, effects=bench.effects)
    document = pipeline(task("one"), {"name": "call", "kind": "playbook", "path": "child"})
    assert isinstance(await worker.run(work_of(document), lambda: NOW), Suspension)
    assert await bench.keys() == ["effect~one.1.bin"]
