"""Large results: stored at the key that follows from where they were made, before anything is decided about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.routed import RoutedObjectStore
from noetl.engine.decide import Report
from noetl.errors import NotFound
from noetl.kernel import canonical
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.lazy import plain
from noetl.kernel.names import Home, ResultCoordinates
from noetl.kernel.time import parse_time
from noetl.payloads.caches import Caches
from noetl.payloads.formats import table_in
from noetl.payloads.results import FEATHER, JSON, Replacing
from noetl.payloads.store import PayloadStore
from noetl.payloads.tables import TableValue
from noetl.payloads.tiers import PayloadTiers
from noetl.ports.objects import ObjectStore
from noetl.runtime.driver import Issued
from noetl.runtime.execution import Execution
from noetl.runtime.keeping import Keeper, Large
from noetl.runtime.storage import payload_ref_of
from noetl.settings import Bytes, Payloads, Settings
from tests.unit.runtime.workshop import ORIGIN, Failed, Workshop, asking, book, memory_workshop, step

TEXT = {"text": "x" * 100_000, "n": 1}
ROWS = {"rows": [[number, f"row {number}"] for number in range(5000)], "columns": ["n", "name"], "total": 5000}
SOMEWHERE = Home(env="dev", region="local", cell="local-a")


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with memory_workshop(tmp_path) as found:
        yield found


class Reading:
    """An object store that counts what is read from it."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.read: Counter[str] = Counter()

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.read[key] += 1
        return await self._objects.get(key, start=start, length=length)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


def over(shop: Workshop, objects: Any, settings: Settings | None = None) -> None:
    """Have the workshop keep its bytes in another store, and nowhere else."""
    payloads = PayloadStore(objects, ORIGIN.tenant_id, ORIGIN.project_id)
    caches = Caches(Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0)), shop.clock)
    tiers = PayloadTiers(payloads, caches)
    shop.embedded = msgspec.structs.replace(
        shop.embedded,
        objects=objects,
        payloads=payloads,
        tiers=tiers,
        settings=shop.embedded.settings if settings is None else settings,
    )


def place(execution_id: int, name: str = "a", **more: Any) -> ResultCoordinates:
    said = {"run": 1, "attempt": 1, **more}
    return ResultCoordinates(
        tenant=ORIGIN.tenant_id, project=ORIGIN.project_id, execution_id=execution_id, step=name, **said
    )


def key_of(where: ResultCoordinates) -> str:
    return where.physical_key(msgspec.structs.replace(SOMEWHERE, root=where.execution_id))


async def recorded(shop: Workshop, execution_id: int, event_type: str = "call.done", name: str = "a") -> list[Envelope]:
    events = await shop.events(execution_id)
    return [event for event in events if event.event_type == event_type and event.node_name == name]


async def test_a_large_result_is_at_its_derived_key(shop: Workshop) -> None:
    shop.body = lambda _: TEXT
    finished = await shop.run(book(step("a")))
    assert finished.result == TEXT
    (event,) = await recorded(shop, finished.execution_id)
    where = place(finished.execution_id)
    ref = event.payload_ref
    assert ref is not None
    assert (ref.uri, ref.key, ref.media_type) == (where.logical_uri(), key_of(where), JSON)
    reference = event.payload["result"]["reference"]
    assert payload_ref_of(reference) == ref
    assert (reference["kind"], reference["ref"], reference["uri"]) == ("result_ref", ref.uri, ref.uri)
    assert (reference["store"], reference["scope"]) == ("kv", "execution")
    assert reference["meta"] == {
        "content_type": "application/json", "compression": "zstd", "bytes": ref.bytes, "sha256": ref.sha256,
    }  # fmt: skip
    assert reference["preview"] == canonical.encode(TEXT)[:1024].decode()
    assert event.payload["result"]["context"] == {"n": 1}
    end = (await shop.events(finished.execution_id))[-1]
    assert end.payload["result"]["reference"] == reference


@pytest.mark.parametrize(("size", "store"), [(100_000, "kv"), (2_000_000, "disk")])
async def test_where_it_is_kept_is_known_in_the_decision_that_follows(shop: Workshop, size: int, store: str) -> None:
    shop.body = lambda call: {"text": "x" * size} if call.step == "a" else call.input
    about = {"ctx.ref": "{{ a._ref }}", "ctx.store": "{{ result._store }}", "ctx.size": "{{ a._preview | length }}"}
    arcs = [{"step": "b", "when": f"{{{{ a._store == '{store}' and output.ref.scope == 'execution' }}}}"}]
    finished = await shop.run(
        book(step("a", set=about, next={"arcs": arcs}), step("b", give={name: f"{{{{ ctx.{name} }}}}" for name in
             ("ref", "store", "size")}))
    )  # fmt: skip
    assert finished.result == {"ref": place(finished.execution_id).logical_uri(), "store": store, "size": 1024}


async def test_a_row_of_a_large_result_in_an_arc_and_in_a_task(shop: Workshop) -> None:
    shop.body = lambda call: ROWS if call.step == "a" else call.input
    arcs = [{"step": "b", "when": "{{ a.rows[1100][0] == 1100 }}"}]
    document = book(
        step("a", next={"arcs": arcs}), step("b", "c", give={"name": "{{ a.rows[1100][1] }}"}),
        step("c", give={"same": "{{ a.total }}", "b": "{{ b }}"}),
    )  # fmt: skip
    finished = await shop.run(document)
    assert finished.result == {"same": 5000, "b": {"name": "row 1100"}}
    (event,) = await recorded(shop, finished.execution_id)
    assert event.payload_ref is not None
    assert (event.payload_ref.media_type, event.payload_ref.rows) == (FEATHER, 5000)
    stored = await shop.embedded.objects.get(event.payload_ref.key or "")
    assert table_in(stored).column_names == ["n", "name"]


async def test_a_table_is_stored_as_one_however_small(shop: Workshop) -> None:
    table = pa.table({"n": [1, 2, 3]})
    shop.body = lambda call: TableValue(table) if call.step == "a" else {"n": 1}
    arcs = [{"step": "b", "when": "{{ a.row_count == 3 and a.rows[2].n == 3 }}"}]
    finished = await shop.run(book(step("a", next={"arcs": arcs}), step("b")))
    assert finished.result == {"n": 1}
    (event,) = await recorded(shop, finished.execution_id)
    assert event.payload["result"]["context"] == {"columns": ["n"], "row_count": 3, "rows": table.to_pylist()}
    driver = shop.driver()
    execution = await driver.execution(finished.execution_id)
    value = await driver.keeper.result_of(execution, "a")
    assert value.arrow.equals(table)


async def test_a_table_of_a_called_playbook_is_one_of_the_caller(shop: Workshop) -> None:
    table = pa.table({"n": [1, 2, 3]})
    shop.body = lambda call: TableValue(table) if call.step == "only" else call.input
    await shop.register(book(step("only"), path="child"))
    call = {"kind": "playbook", "path": "child"}
    tasks = [
        {"name": "ask", **call},
        {"name": "use", "kind": "python", "code": "-", "input": {"n": "{{ ask.rows[2].n }}"}},
    ]
    read = {"direct": "{{ direct.rows[1].n }}", "piped": "{{ piped.results.use.n }}", "status": "{{ direct.status }}"}
    document = book(step("direct", "piped", tool=call), step("piped", "end", tool=tasks), step("end", give=read))
    finished = await shop.run(document)
    assert finished.result == {"direct": 2, "piped": 3, "status": "COMPLETED"}


async def test_iterations_and_their_loop_have_places_of_their_own(shop: Workshop) -> None:
    shop.body = lambda call: {"text": "y" * 100_000, **call.input}
    loop = {"in": [5, 6], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 2}}
    arcs = [{"step": "b", "when": "{{ a.stats.success == 2 and a._ref is defined and a.results[1].n == 6 }}"}]
    document = book(
        step("a", loop=loop, give={"n": "{{ n }}"}, next={"arcs": arcs}),
        step("b", give={"ref": "{{ a._ref }}", "second": "{{ a.results[1].n }}", "count": "{{ a.count }}"}),
    )
    finished = await shop.run(document)
    where = place(finished.execution_id)
    assert {key: value for key, value in finished.result.items() if key != "text"} == {
        "ref": where.logical_uri(), "second": 6, "count": 2,
    }  # fmt: skip
    done = await recorded(shop, finished.execution_id)
    keys = {event.payload_ref.key for event in done if event.payload_ref is not None}
    assert keys == {key_of(place(finished.execution_id, row=index)) for index in (0, 1)}
    (ended,) = await recorded(shop, finished.execution_id, "loop.done")
    assert ended.payload_ref is not None
    assert ended.payload_ref.key == key_of(where)
    assert ended.payload["result"]["context"] == {"count": 2, "stats": {"failed": 0, "success": 2, "total": 2}}
    whole = await shop.embedded.results.value(ended.payload_ref)
    assert [one["n"] for one in whole["results"]] == [5, 6]


async def test_the_place_names_the_attempt_that_the_result_came_from(shop: Workshop) -> None:
    tried: list[int] = []

    def body(call: Any) -> Json:
        tried.append(call.attempt)
        if call.attempt < 3:
            raise Failed("not yet")
        return TEXT

    shop.body = body
    retrying = {"rules": [{"when": "{{ output.status == 'error' }}", "then": {"do": "retry", "attempts": 5}}]}
    tool = {"kind": "python", "code": "-", "spec": {"policy": retrying}}
    finished = await shop.run(book(step("a", tool=tool)))
    assert (finished.result["text"], tried) == (TEXT["text"], [1, 2, 3])
    (event,) = await recorded(shop, finished.execution_id)
    assert event.payload_ref is not None
    assert event.payload_ref.uri == place(finished.execution_id, attempt=3).logical_uri()


async def test_a_second_run_of_a_step_does_not_touch_the_first(shop: Workshop) -> None:
    shop.body = lambda call: {**TEXT, "turn": shop.calls.count("a")}
    back = [{"step": "a", "when": "{{ a.turn < 2 }}"}]
    finished = await shop.run(book(step("a", next={"arcs": back})))
    first, second = await recorded(shop, finished.execution_id)
    assert first.payload_ref is not None
    assert second.payload_ref is not None
    assert (await shop.embedded.results.value(first.payload_ref))["turn"] == 1
    assert (await shop.embedded.results.value(second.payload_ref))["turn"] == 2


@pytest.mark.parametrize(
    ("document", "read"),
    [
        (book(step("a", "b"), step("b")), False),
        (book(step("a", "b"), step("b", give={"all": "{{ a }}"})), False),  # whoever works on b fetches it
        (book(step("a", "b"), step("b", next={"arcs": [{"step": "c", "when": "{{ a.n == 1 }}"}]}), step("c")), False),
        (book(step("a", "b"), step("b", set={"ctx.size": "{{ a.text | length }}"})), True),
        (book(step("a", "b"), step("b", loop={"in": "{{ a.text }}", "iterator": "i"})), True),
    ],
)
async def test_who_takes_an_execution_up_reads_what_decisions_will_need(
    shop: Workshop, document: Json, read: bool
) -> None:
    objects = Reading(shop.embedded.objects)
    over(shop, objects)
    issued: list[Issued] = []
    driver = shop.driver(issued)
    execution_id = await driver.start(asking(document))
    await driver.report(execution_id, Report(command_id=issued[0].command_id, result=TEXT))
    objects.read.clear()
    again = await shop.driver().execution(execution_id)
    assert (key_of(place(execution_id)) in objects.read, "a" in again.results) == (read, read)
    assert ("a" in (await driver.execution(execution_id)).results) == read


async def test_a_loop_in_flight_has_its_large_iterations_again(shop: Workshop) -> None:
    loop = {"in": [1, 2], "iterator": "n"}
    issued: list[Issued] = []
    driver = shop.driver(issued)
    execution_id = await driver.start(asking(book(step("a", loop=loop))))
    await driver.report(execution_id, Report(command_id=issued[0].command_id, result=TEXT))
    again = shop.driver(issued)
    assert list((await again.execution(execution_id)).iterations["a"]) == [TEXT]
    await again.report(execution_id, Report(command_id=issued[1].command_id, result={"small": 1}))
    execution = await again.execution(execution_id)
    assert (await again.keeper.result_of(execution, "a"))["results"] == [TEXT, {"small": 1}]


async def test_what_a_killed_process_has_stored_is_replaced(shop: Workshop) -> None:
    """It was killed between storing and committing, and the tool gives something else the second time."""
    issued: list[Issued] = []
    driver = shop.driver(issued)
    execution_id = await driver.start(asking(book(step("a"))))
    shop.ledger.before_append = _killed
    with pytest.raises(_Killed):
        await driver.report(execution_id, Report(command_id=issued[0].command_id, result={**TEXT, "n": 1}))
    shop.ledger.before_append = None
    assert await shop.embedded.objects.head(key_of(place(execution_id))) is not None
    again = shop.driver(issued)
    await again.report(execution_id, Report(command_id=issued[0].command_id, result={**TEXT, "n": 2}))
    execution = await again.execution(execution_id)
    assert await again.keeper.result_of(execution, "a") == {**TEXT, "n": 2}
    await shop.prove()


async def test_a_late_report_replaces_nothing(shop: Workshop) -> None:
    """Its process has not heard that somebody else has reported the command."""
    issued: list[Issued] = []
    driver, late = shop.driver(issued), shop.driver()
    execution_id = await driver.start(asking(book(step("a"))))
    await late.execution(execution_id)
    assert await driver.report(execution_id, Report(command_id=issued[0].command_id, result={**TEXT, "n": 1}))
    assert not await late.report(execution_id, Report(command_id=issued[0].command_id, result={**TEXT, "n": 2}))
    execution = await late.execution(execution_id)
    assert await late.keeper.result_of(execution, "a") == {**TEXT, "n": 1}


async def test_a_failure_with_a_large_result(shop: Workshop) -> None:
    issued: list[Issued] = []
    driver = shop.driver(issued)
    execution_id = await driver.start(asking(book(step("a"))))
    error = {"kind": "server_error", "code": "HTTP_500", "message": "no", "retryable": True}
    await driver.report(execution_id, Report(command_id=issued[0].command_id, result=TEXT, error=error))
    execution = await driver.execution(execution_id)
    assert await driver.keeper.result_of(execution, "a") == {**TEXT, "error": error, "status": "error"}
    (event,) = await recorded(shop, execution_id, "call.error")
    assert event.payload["error"] == error
    assert event.payload_ref is not None


async def test_a_result_that_is_gone_is_the_task_s_error(shop: Workshop) -> None:
    shop.body = lambda call: TEXT
    document = book(step("a", "b"), step("b", give={"size": "{{ a.text | length }}"}))
    async with shop.runner(slots=0) as runner:
        execution_id = await runner.start(asking(document))
    issued: list[Issued] = []
    driver = shop.driver(issued)
    (pending,) = await driver.pending(execution_id)
    await driver.report(execution_id, Report(command_id=pending.command_id, result=TEXT))
    await shop.embedded.objects.delete(key_of(place(execution_id)))
    async with shop.runner() as runner:
        await runner.resume(execution_id)
        finished = await runner.wait(execution_id)
    assert finished.error is not None
    assert (finished.error["kind"], finished.error["code"]) == ("missing_reference", "REFERENCE_NOT_AVAILABLE")
    assert finished.error["retryable"]
    assert place(execution_id).logical_uri() in finished.error["message"]


async def test_a_result_of_a_step_expires(shop: Workshop) -> None:
    shop.body = lambda _: TEXT
    finished = await shop.run(book(step("a", output={"scope": "step"})))
    (event,) = await recorded(shop, finished.execution_id)
    reference = event.payload["result"]["reference"]
    assert reference["scope"] == "step"
    assert 0 <= shop.clock.now() + 86_400_000_000 - parse_time(reference["expires_at"]) < 60_000_000


async def test_a_noop_with_a_large_result(shop: Workshop) -> None:
    shop.body = lambda call: TEXT if call.step == "a" else call.input
    copy = step("b", "c", tool={"kind": "noop", "result": {"copied": "{{ a.text }}"}})
    finished = await shop.run(book(step("a", "b"), copy, step("c", give={"size": "{{ b.copied | length }}"})))
    assert finished.result == {"size": 100_000}
    (event,) = await recorded(shop, finished.execution_id, name="b")
    assert event.payload_ref is not None
    assert event.payload_ref.key == key_of(place(finished.execution_id, "b"))


async def test_a_route_leads_to_another_store(shop: Workshop) -> None:
    own, bucket = shop.embedded.objects, MemoryObjectStore()

    async def opened() -> ObjectStore:
        return bucket

    settings = Settings(payloads=Payloads(routes=("s3=s3://bucket/results",)))
    over(shop, RoutedObjectStore(own, {"s3": opened}), settings)
    shop.body = lambda call: TEXT if call.step == "a" else call.input
    document = book(step("a", "b", output={"store": {"kind": "s3"}}), step("b", give={"n": "{{ a.text | length }}"}))
    finished = await shop.run(document)
    assert finished.result == {"n": 100_000}
    (event,) = await recorded(shop, finished.execution_id)
    assert event.payload["result"]["reference"]["store"] == "s3"
    key = key_of(place(finished.execution_id))
    assert event.payload_ref is not None
    assert event.payload_ref.key == f"route=s3/{key}"
    assert await bucket.head(key) is not None
    assert await own.head(key) is None


class TestEarlierReleases:
    """Their logs refer to a payload by its digest, with the result inside of a part of the event."""

    @pytest.fixture(autouse=True)
    def before(self, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
        monkeypatch.setattr(Keeper, "keep", _as_before)
        return monkeypatch

    @pytest.mark.parametrize("loop", [{}, {"loop": {"in": [1, 2], "iterator": "n"}}])
    async def test_their_executions_go_on(self, shop: Workshop, before: pytest.MonkeyPatch, loop: Json) -> None:
        issued: list[Issued] = []
        driver = shop.driver(issued)
        document = book(step("a", "b", **loop), step("b", give={"all": "{{ a }}"}, set={"ctx.s": "{{ a | length }}"}))
        execution_id = await driver.start(asking(document))
        await driver.report(execution_id, Report(command_id=issued[0].command_id, result=TEXT))
        (event,) = await recorded(shop, execution_id)
        assert event.payload_ref is not None
        assert event.payload_ref.key is None
        before.undo()
        shop.body = lambda call: call.input
        async with shop.runner() as runner:
            await runner.resume(execution_id)
            finished = await runner.wait(execution_id)
        assert finished.status == "COMPLETED"
        found = finished.result["all"]
        assert (found["results"][0] if loop else found) == TEXT
        await shop.prove()


async def _as_before(self: Keeper, execution: Execution, report: Report, large: Large, replacing: Replacing) -> Report:
    stored = canonical.encode({"result": {"status": "ok", "context": plain(large.value)}})
    ref: PayloadRef = await self.payloads.store(stored, media_type="application/json")
    reference = {
        "kind": "result_ref", "ref": ref.uri, "uri": ref.uri, "store": "kv", "scope": "execution", "preview": "",
        "meta": {"content_type": ref.media_type, "bytes": ref.bytes, "sha256": ref.sha256},
    }  # fmt: skip
    return msgspec.structs.replace(report, result={"n": 1}, reference=reference, stored=ref)


class _Killed(Exception):
    """The process is no more."""


async def _killed() -> None:
    raise _Killed


class TestMeasuring:
    """What stays in its event: exactly what has room there."""

    @pytest.mark.parametrize(
        ("report", "large"),
        [
            ({"result": None}, False),
            ({"result": {"t": "x" * 65_000}}, False),
            ({"result": {"t": "x" * 66_000}}, True),
            ({"result": {"t": "x" * 60_000}, "detail": {"output": {"http": "x" * 9_000}}}, True),
            ({"result": {"t": "x" * 20_000}, "set": {"ctx.a": "y" * 200_000}}, False),
            ({"result": {"t": "x" * 40_000}, "set": {f"ctx.{n}": "y" * 4_000 for n in range(100)}}, True),
        ],
    )
    async def test_by_size(self, shop: Workshop, report: Mapping[str, Any], large: bool) -> None:
        issued: list[Issued] = []
        driver = shop.driver(issued)
        execution_id = await driver.start(asking(book(step("a"))))
        said = Report(command_id=issued[0].command_id, **report)
        assert (driver.keeper.large_part(await driver.execution(execution_id), said) is not None) == large
        await driver.report(execution_id, said)
        (event,) = await recorded(shop, execution_id)
        assert (event.payload_ref is not None) == large


async def test_the_result_of_an_execution_that_was_lost_says_which(shop: Workshop) -> None:
    over(shop, shop.embedded.objects)
    shop.body = lambda _: TEXT
    finished = await shop.run(book(step("a")))
    await shop.embedded.objects.delete(key_of(place(finished.execution_id)))
    driver = shop.driver()
    execution = await driver.execution(finished.execution_id)
    with pytest.raises(NotFound, match=r"results/.*/a~1/0/0/1@v1' is not in the store any more"):
        await driver.keeper.result_of(execution, "a")
