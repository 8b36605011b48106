"""Lists of a stage's outputs and inputs: what they name goes along, stays alive and is looked after."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from noetl.data.stage.inputs import payload_ref_of
from noetl.data.stage.listing import listed_in, outputs_in, reference_to
from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.names import Home as Place
from noetl.kernel.names import ResultCoordinates
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.runtime.buffers import keep_buffers
from noetl.runtime.delivery import buffer_part
from noetl.runtime.gc.collection import Request, collect
from noetl.runtime.home import Home
from noetl.runtime.ingest import Ingest, Wanted
from noetl.runtime.repair.service import Request as RepairRequest
from noetl.runtime.repair.service import repair
from noetl.runtime.requests import Origin
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings, Tenant
from tests.contracts.slot_host import ORIGIN, Ground, ground, numbers, square
from tests.unit.runtime.histories import EXECUTION, History, home_at

OTHERS = Origin(tenant_id="others", organization_id="theirs", home=ORIGIN.home)


async def of_a_spark_task(history: History, rows: bytes = b"rows") -> tuple[Json, PayloadRef]:
    """An execution whose result refers to a list; only that names the payload that has the rows."""
    await history.begin()
    output = await history.store(rows)
    listed = {"kind": "frames", "frames": [{"index": 0, "rows": 1, "output": msgspec.to_builtins(output)}]}
    listing = await history.store(canonical.encode(listed))
    meta = {"content_type": listing.media_type, "bytes": listing.bytes, "sha256": listing.sha256}
    ref: Json = {"kind": "result_ref", "ref": listing.uri, "meta": meta, "form": "frames", "frames": 1}
    await history.tell("call.done", node_name="load", payload={"result": {"status": "ok", "context": {"ref": ref}}})
    await history.end()
    return ref, output


async def delivered(on: Ground, execution: int, place: Path, origin: Origin) -> Settings:
    """An execution, in another installation."""
    assert on.embedded.home is not None
    root = Stream(ORIGIN.tenant_id, execution_stream(execution))
    parts = [buffer_part(one, whole=True) for one in await keep_buffers(on.embedded, on.embedded.home.path, root)]
    settings = Settings(tenant=Tenant(id=origin.tenant_id, organization=origin.organization_id))
    async with open_embedded(Home(place), settings, create=True) as other:
        wanted = Wanted(as_tenant=None if origin is ORIGIN else origin.tenant_id)
        taken = await Ingest(other, place).take(parts, origin, wanted)
        assert taken.status == "completed"
    return settings


@pytest.mark.parametrize("origin", [ORIGIN, OTHERS], ids=["as it is", "taken over"])
async def test_the_outputs_of_a_stage_can_be_read_where_they_were_pushed_to(origin: Origin, tmp_path: Path) -> None:
    async with ground(tmp_path, "worker") as on:
        finished = await on.run(on.fanout(numbers(7), square(), frame={"max_rows": 3}))
        settings = await delivered(on, finished.execution_id, tmp_path / "b", origin)
    async with open_embedded(Home(tmp_path / "b"), settings, create=False) as other:
        root = Stream(origin.tenant_id, execution_stream(finished.execution_id))
        events = [item.event for item in await other.ledger.read(root, limit=1000)]
        (done,) = [event for event in events if event.event_type == "loop.done"]
        listing = payload_ref_of(done.payload["result"]["context"]["ref"])
        outputs = outputs_in(await other.results.value(listing), listing)
        rows = [row for ref in outputs for row in (await other.tiers.table(ref)).to_pylist()]
    assert [row["square"] for row in rows] == [n * n for n in range(7)]


async def test_what_only_a_list_names_is_delivered_with_it(tmp_path: Path) -> None:
    async with home_at(tmp_path / "a") as embedded:
        _, output = await of_a_spark_task(History(embedded))
        (place,) = await keep_buffers(embedded, tmp_path / "a", Stream("acme", execution_stream(EXECUTION)))
    assert (place / "payloads" / output.sha256).read_bytes() == b"rows"
    (place / "payloads" / output.sha256).unlink()
    async with home_at(tmp_path / "b") as other:
        origin = Origin(tenant_id="acme", organization_id="retail", project_id="sales")
        with pytest.raises(InvalidInput, match=f"refers to payload {output.sha256}, which neither came nor is here"):
            await Ingest(other, tmp_path / "b").take([buffer_part(place, whole=True)], origin, Wanted())


@pytest.mark.parametrize("trace", [True, False], ids=["deep", "shallow"])
async def test_what_only_a_list_names_is_not_collected(trace: bool, tmp_path: Path) -> None:
    async with home_at(tmp_path) as embedded:
        _, output = await of_a_spark_task(History(embedded))
        found = await collect(embedded, Request(grace_seconds=0, delete=True, trace=trace))
        assert (found.objects, found.counts.deleted) == (0, 0)
        assert await embedded.payloads.fetch(output) == b"rows"


@pytest.mark.parametrize("trace", [True, False], ids=["deep", "shallow"])
async def test_the_inputs_of_a_stage_are_not_collected(trace: bool, tmp_path: Path) -> None:
    async with ground(tmp_path, "worker") as on:
        await on.run(on.fanout(numbers(3), square()))
        found = await collect(on.embedded, Request(grace_seconds=0, trace=trace))
    assert [group.keys for group in found.groups] == []


async def test_repair_looks_after_what_only_a_list_names(tmp_path: Path) -> None:
    async with home_at(tmp_path) as embedded:
        _, output = await of_a_spark_task(History(embedded))
        await embedded.objects.delete(embedded.payloads.key(output))
        done = await repair(embedded, Home(tmp_path), RepairRequest())
    assert [(finding.sha256, finding.outcome) for finding in done.lost] == [(output.sha256, "lost")]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"kind":"frames"}', b'{"kind":"frames","frames":[{"output":{"uri":"x"}}]}',
             b'{"kind":"frames","frames":[{"output":{"uri":"noetl://a/b/payloads/sha256/0","sha256":"1","bytes":1,"media_type":"x"}}]}',
             b'{"kind":"pinned","sources":[3]}', b'{"kind":"else"}'],
)  # fmt: skip
def test_what_is_no_list_names_nothing(data: bytes) -> None:
    sha256 = "ab" * 32
    listing = PayloadRef(
        uri=f"noetl://acme/sales/payloads/sha256/{sha256}", sha256=sha256, media_type="application/json", bytes=2
    )
    assert listed_in(data, listing) == []


def test_a_reference_that_somebody_made_up_leads_nowhere() -> None:
    place = ResultCoordinates(tenant="acme", project="sales", execution_id=1 << 50, step="a", run=1, attempt=1)
    key = place.physical_key(Place(env="dev", region="local", cell="local-a"))
    meta = {"sha256": "ab" * 32, "bytes": 3, "content_type": "application/json"}
    assert reference_to({"ref": place.logical_uri(), "key": key, "meta": meta}) is not None
    assert reference_to({"ref": place.logical_uri(), "key": key.replace("/a~1/", "/b~1/"), "meta": meta}) is None
    assert reference_to({"ref": place.logical_uri(), "meta": meta}) is None
    assert reference_to({"ref": "no name", "meta": meta}) is None
    assert reference_to({"ref": place.logical_uri(), "key": key}) is None
