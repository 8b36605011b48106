"""Forks on a ledger: what is adopted is by reference, in one append, and enough to go on from."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.kernel import canonical
from noetl.kernel.event import MAX_PAYLOAD_BYTES, Json
from noetl.playbook.parse import load
from noetl.runtime.driver import Driver, Request
from noetl.runtime.embedded.runner import Finished
from noetl.runtime.fork import Forks, Repaired, Retry
from noetl.tools.base import Call
from tests.unit.runtime.workshop import ORIGIN, Failed, Workshop, as_text, book, plain, step

CHAIN = book(
    step("a", "b", set={"ctx.a": "{{ result.step }}"}), step("b", "c"), step("c"), workload={"day": "{{ now() }}"}
)


class Broken:
    """A body whose step fails until it is mended."""

    def __init__(self, step: str, **results: Any) -> None:
        self.step: str | None = step
        self._results = results

    def __call__(self, call: Call) -> Any:
        if call.step == self.step:
            raise Failed("broken")
        return self._results.get(call.step, {"step": call.step})


async def plan(shop: Workshop, driver: Driver, execution_id: int, **more: Any) -> Request:
    forks = Forks(shop.ledger, shop.embedded.payloads, driver, ORIGIN.tenant_id)
    return await forks.plan(Retry(execution_id=execution_id, **more))


async def retry(shop: Workshop, execution_id: int, **more: Any) -> Finished:
    """A retry to its end, by a process of its own; its log is proved, and read by another one."""
    async with shop.runner() as runner:
        started = await runner.start(await plan(shop, runner.driver, execution_id, **more))
        await runner.resume(started)
        finished = await runner.wait(started)
        live = await runner.driver.execution(started)
    await shop.prove()
    read = await shop.driver().execution(started)
    assert plain(read.control) == plain(live.control)
    return finished


async def failed(shop: Workshop, document: Json = CHAIN, at: str = "b", **results: Any) -> tuple[Finished, Broken]:
    shop.body = body = Broken(at, **results)
    finished = await shop.run(document)
    assert finished.status == "FAILED"
    shop.calls.clear()
    return finished, body


def repaired(document: Json, file: str = "repaired.yaml") -> Repaired:
    text = as_text(document)
    return Repaired(text=text, file=file, origin="file", playbook=load(text, file))


async def test_a_retry_runs_what_failed_and_what_follows(either: Workshop) -> None:
    source, body = await failed(either)
    body.step = None
    finished = await retry(either, source.execution_id)
    assert (finished.status, finished.result) == ("COMPLETED", {"step": "c"})
    assert either.calls == ["b", "c"]
    opening = (await either.events(finished.execution_id))[0].payload
    assert opening["forked_from"]["execution_id"] == source.execution_id
    assert (opening["root_execution_id"], opening["parent_execution_id"]) == (finished.execution_id, None)
    assert opening["ctx"] == {"a": "a"}


async def test_the_workload_is_the_one_of_the_source(shop: Workshop) -> None:
    source, _ = await failed(shop)
    before = (await shop.events(source.execution_id))[0].payload["workload"]
    shop.clock.advance(3600)
    finished = await retry(shop, source.execution_id, workload={"limit": 3, "ctx": {"seed": 1}})
    opening = (await shop.events(finished.execution_id))[0].payload
    assert opening["workload"] == {**before, "limit": 3, "seed": 1}
    assert opening["ctx"] == {"a": "a", "seed": 1}


async def test_a_workload_value_named_ctx_stays_one(shop: Workshop) -> None:
    document = {**CHAIN, "workload": {"ctx": {"n": 1}}}
    source, _ = await failed(shop, document)
    finished = await retry(shop, source.execution_id)
    opening = (await shop.events(finished.execution_id))[0].payload
    assert (opening["workload"], opening["ctx"]) == ({"ctx": {"n": 1}}, {"a": "a"})


async def test_a_large_result_is_adopted_by_reference(either: Workshop) -> None:
    large = {"rows": [{"n": number, "text": "x" * 1000} for number in range(10_000)], "step": "a"}
    document = book(step("a", "b"), step("b", give={"last": "{{ a.rows[-1].n }}"}))
    source, body = await failed(either, document, a=large)
    done = next(event for event in await either.events(source.execution_id) if event.event_type == "call.done")
    assert done.payload_ref is not None
    assert done.payload_ref.key is not None
    body.step, either.body = None, lambda call: call.input
    finished = await retry(either, source.execution_id)
    assert finished.result == {"last": 9999}
    events = await either.events(finished.execution_id)
    assert events[1].event_type == "step.adopted"
    assert events[1].payload_ref == done.payload_ref
    assert events[1].payload["result"] == done.payload["result"]


async def test_an_adopted_loop_keeps_its_large_results(either: Workshop) -> None:
    each = step("a", "b", loop={"in": list(range(200)), "iterator": "n"})
    document = book(
        each, step("b", give={"count": "{{ a.results | length }}", "last": "{{ a.data[199].text | length }}"})
    )
    source, body = await failed(either, document, a={"text": "y" * 1000})
    body.step, either.body = None, lambda call: call.input
    finished = await retry(either, source.execution_id)
    assert finished.result == {"count": 200, "last": 1000}
    again = await retry(either, finished.execution_id, step="b")
    assert again.result == finished.result


async def test_many_steps_are_adopted_in_one_append(shop: Workshop) -> None:
    names = [f"s{number}" for number in range(2000)]
    noop = {"kind": "noop", "result": {"text": "z" * 100}}
    steps = [step(name, after, tool=noop) for name, after in zip(names, [*names[1:], "last"], strict=True)]
    source, body = await failed(shop, book(*steps, step("last")), "last")
    body.step = None
    shop.ledger.appends.clear()
    finished = await retry(shop, source.execution_id)
    assert finished.status == "COMPLETED"
    first = shop.ledger.appends[0]
    assert sum(event.event_type == "step.adopted" for event in first) == 2000
    assert first[-1].event_type == "command.issued"


async def test_however_much_is_in_ctx_an_event_is_not_too_large(either: Workshop) -> None:
    wide = {f"key_{number}": {"text": "w" * 20} for number in range(3000)}
    parts = [dict(list(wide.items())[start : start + 300]) for start in range(0, 3000, 300)]
    names = [f"p{number}" for number in range(len(parts))]
    steps = [
        step(name, after, set={f"ctx.{key}": value for key, value in part.items()})
        for name, after, part in zip(names, [*names[1:], "b"], parts, strict=True)
    ]
    source, body = await failed(either, book(*steps, step("b", give={"one": "{{ ctx.key_2999.text }}"})))
    body.step, either.body = None, lambda call: call.input
    finished = await retry(either, source.execution_id)
    assert finished.result == {"one": "w" * 20}
    for event in await either.events(finished.execution_id):
        assert len(canonical.encode(event.payload)) <= MAX_PAYLOAD_BYTES
    control = (await either.driver().execution(finished.execution_id)).control
    assert control.ctx == wide


async def test_a_retry_can_be_retried(shop: Workshop) -> None:
    source, body = await failed(shop)
    body.step = "c"
    middle = await retry(shop, source.execution_id)
    assert middle.status == "FAILED"
    body.step = None
    shop.calls.clear()
    finished = await retry(shop, middle.execution_id)
    assert (finished.status, shop.calls) == ("COMPLETED", ["c"])


async def test_a_retry_that_was_killed_is_resumed_from_its_own_log(either: Workshop) -> None:
    source, body = await failed(either)
    body.step = None
    driver = either.driver()
    started = await driver.start(await plan(either, driver, source.execution_id))
    async with either.runner() as runner:
        await runner.resume(started)
        finished = await runner.wait(started)
    assert (finished.status, either.calls) == ("COMPLETED", ["b", "c"])
    await either.prove()


async def test_a_retry_that_cannot_be_written_leaves_nothing(shop: Workshop) -> None:
    source, _ = await failed(shop)
    driver = shop.driver()
    request = await plan(shop, driver, source.execution_id)

    async def full() -> None:
        raise Unavailable("the disk is full")

    shop.ledger.before_append = full
    with pytest.raises(Unavailable):
        await driver.start(request)
    shop.ledger.before_append = None
    assert [event.execution_id for batch in shop.ledger.appends for event in batch if event.stream_version == 1] == [
        source.execution_id
    ]


async def test_the_same_key_is_the_same_retry(shop: Workshop) -> None:
    source, body = await failed(shop)
    body.step = None
    one = await retry(shop, source.execution_id, key="again")
    two = await retry(shop, source.execution_id, key="again")
    assert one.execution_id == two.execution_id
    assert shop.calls == ["b", "c"]


async def test_a_key_of_something_else_is_refused(shop: Workshop) -> None:
    shop.body = Broken("b")
    source = await shop.run(CHAIN, key="daily")
    with pytest.raises(InvalidInput, match=f"belongs to execution {source.execution_id}, which is not a retry"):
        await plan(shop, shop.driver(), source.execution_id, key="daily")


async def test_what_has_completed_needs_a_step(shop: Workshop) -> None:
    source = await shop.run(CHAIN)
    with pytest.raises(InvalidInput, match="is COMPLETED and no step of it has failed") as caught:
        await plan(shop, shop.driver(), source.execution_id)
    assert "--from STEP; steps: a, b, c" in (caught.value.hint or "")
    shop.calls.clear()
    assert (await retry(shop, source.execution_id, step="c")).status == "COMPLETED"
    assert shop.calls == ["c"]


async def test_what_is_still_running_is_refused_unless_forced(shop: Workshop) -> None:
    driver = shop.driver()
    running = await driver.start(Request(document=as_text(CHAIN)))
    with pytest.raises(InvalidInput, match="still running") as caught:
        await plan(shop, driver, running, step="a")
    assert f"noetl resume {running}" in (caught.value.hint or "")
    assert (await retry(shop, running, step="a", force=True)).status == "COMPLETED"
    assert (await driver.execution(running)).control.ended is None


async def test_what_does_not_exist_is_said_so(shop: Workshop) -> None:
    with pytest.raises(NotFound, match="there is no execution 5"):
        await plan(shop, shop.driver(), 5)
    source, _ = await failed(shop, book(step("load", "report"), step("report"), step("island")), "load")
    with pytest.raises(InvalidInput, match="there is no step 'raport' in t") as caught:
        await plan(shop, shop.driver(), source.execution_id, step="raport")
    assert caught.value.hint == "did you mean 'report'?"
    with pytest.raises(InvalidInput, match="step 'island' did not run, and no arc leads to it"):
        await plan(shop, shop.driver(), source.execution_id, step="island")


async def test_a_repaired_document_is_gone_on_with(shop: Workshop) -> None:
    source, body = await failed(shop)
    body.step = None
    mended = book(
        step("a", "b"), step("b", "d", give={"more": "{{ more }}"}), step("d", give={"was": "{{ result.step }}"}),
        workload={"more": "{{ 1 + 1 }}"},
    )  # fmt: skip
    finished = await retry(shop, source.execution_id, repaired=repaired(mended))
    assert (finished.status, shop.calls) == ("COMPLETED", ["b", "d"])
    opening = (await shop.events(finished.execution_id))[0].payload
    assert opening["document"]["file"] == "repaired.yaml"
    assert opening["workload"]["more"] == 2
    assert "day" in opening["workload"]


async def test_a_repaired_document_must_have_the_adopted_steps(shop: Workshop) -> None:
    source, _ = await failed(shop)
    without = repaired(book(step("b", "c"), step("c")))
    with pytest.raises(InvalidInput, match=r"repaired\.yaml has no step 'a', whose result is to be adopted"):
        await plan(shop, shop.driver(), source.execution_id, repaired=without)
    other = repaired(book(step("a"), path="other"))
    with pytest.raises(InvalidInput, match=r"is the playbook 'other', and execution .* ran 't'"):
        await plan(shop, shop.driver(), source.execution_id, repaired=other)


async def test_state_says_where_a_retry_comes_from(shop: Workshop) -> None:
    source, body = await failed(shop)
    body.step = None
    finished = await retry(shop, source.execution_id)
    page = await shop.embedded.projections.query("execution", where={"execution_id": finished.execution_id}, limit=1)
    row = canonical.decode(page.rows[0].row)
    assert row["forked_from"]["step"] == "b"
    assert (row["steps_adopted"], row["steps_entered"], row["ctx"]) == (1, 2, {"a": "a"})
