"""Sweeps by Spark: what they find is what one process finds, on the same store and the same log."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.data.sweeps.garbage import Garbage, Suspects
from noetl.errors import NotFound
from noetl.kernel.names import Home as Cell
from noetl.kernel.names import ResultCoordinates
from noetl.payloads.sidecar import sidecar_key
from noetl.payloads.store import payload_key
from noetl.runtime.gc.collection import Collection, Request, collect
from noetl.runtime.repair.needs import inside_of, needs_of
from noetl.runtime.repair.service import Request as RepairRequest
from noetl.runtime.repair.service import repair
from noetl.settings import Spark
from tests.unit.data.sweeps.test_tasks import put_away
from tests.unit.runtime.plant import Plant, opened

pytestmark = [pytest.mark.usefixtures("our_spark"), pytest.mark.timeout(300)]

DAY = 86_400.0
CELL = Cell(env="dev", region="local", cell="local-a")
SPARK = Spark(master="local[2]")
LARGE = "result = {'rows': [{'id': i, 'name': 'n%d' % i} for i in range(5000)]}"

SQUARES = {"kind": "python", "code": "result = frame.table", "spec": {"side_effecting": False}}


def book(code: str = LARGE) -> dict[str, Any]:
    step = {"step": "make", "tool": {"kind": "python", "code": code, "spec": {"side_effecting": False}}}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "b", "path": "b"}}
    return {**head, "workflow": [step]}


class Yard:
    """The store of an installation, in which objects are left lying."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        assert plant.embedded.home is not None
        self.store = plant.embedded.home.payloads

    def leave(self, key: str, content: bytes = b"left", *, days: float = 2) -> str:
        file = self.store / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        then = time.time() - days * DAY
        os.utime(file, (then, then))
        return key

    def payload(self, content: bytes, **more: Any) -> str:
        return self.leave(payload_key("default", hashlib.sha256(content).hexdigest()), content, **more)

    def result(self, execution_id: int, content: bytes = b"[1]", **more: Any) -> str:
        place = ResultCoordinates(
            tenant="default", project="default", execution_id=execution_id, step="make", run=9, attempt=1
        )
        return self.leave(place.physical_key(CELL), content, **more)

    def age(self, days: float = 2) -> None:
        for file in self.store.rglob("*"):
            if file.is_file():
                self.leave(str(file.relative_to(self.store)), file.read_bytes(), days=days)

    async def collect(self, *, spark: bool, **asked: Any) -> Collection:
        return await collect(self.plant.embedded, Request(grace_seconds=DAY, spark=spark, **asked))


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with opened(tmp_path, {"spark": SPARK}) as plant:
        yield Yard(plant)


async def filled(yard: Yard) -> None:
    """One of everything that makes an object dead, or keeps it."""
    inner = b"named by what a result names"
    outer = f"it is {hashlib.sha256(inner).hexdigest()}".encode()
    yard.payload(inner)
    yard.payload(outer)
    code = (  # the document does not say the digest, and its event neither
        f"import hashlib\ninner = hashlib.sha256({inner!r}).hexdigest()\n"
        "digest = hashlib.sha256(b'it is ' + inner.encode()).hexdigest()\n"
        "result = {'fill': 'x' * 100_000, 'in': {'deep': 'noetl://default/default/payloads/sha256/' + digest}}"
    )
    execution = (await yard.plant.run(book(code))).execution_id
    await yard.plant.register(book())
    yard.age()
    orphan = yard.payload(b"an orphan")
    yard.leave(sidecar_key(orphan), b"{}")
    yard.payload(b"a young one", days=0)
    yard.result(execution)
    yard.result(286_000_000_000_000_001)
    yard.leave(sidecar_key(payload_key("default", "ab" * 32)), b"{}")
    yard.leave("somebody/elses.txt")
    yard.leave("top.txt")
    yard.leave("noetl/owner.json")


def plain(found: Collection) -> Any:
    return msgspec.to_builtins(found)


@pytest.mark.parametrize("trace", [True, False], ids=["traced", "shallow"])
async def test_spark_finds_the_garbage_that_one_process_finds(yard: Yard, trace: bool) -> None:
    await filled(yard)
    alone = await yard.collect(spark=False, trace=trace)
    assert (alone.objects, alone.counts.young, alone.counts.foreign) == (5 if trace else 7, 1, 2)
    assert plain(await yard.collect(spark=True, trace=trace)) == plain(alone)


async def test_what_archived_executions_need_is_kept_and_looked_at_by_spark_too(yard: Yard) -> None:
    """The same findings as one process has, and none at all without the archive."""
    await filled(yard)
    (kept,) = await yard.plant.embedded.ledger.moved(after_position=0, to_position=1)
    await put_away(yard.plant.embedded, kept.execution_id or 0)
    await yard.plant.run(book())
    alone = await yard.collect(spark=False)
    assert plain(await yard.collect(spark=True)) == plain(alone)
    assert yard.plant.embedded.home is not None
    needs = [need async for need in needs_of(yard.plant.embedded.ledger, kept.root)]
    for need in needs:
        (yard.store / need.key).unlink()
    one, found = [
        await repair(yard.plant.embedded, yard.plant.embedded.home, RepairRequest(dry_run=True, spark=spark))
        for spark in (False, True)
    ]
    assert len(one.objects.findings) == len({need.key for need in needs})
    assert msgspec.to_builtins(found.objects) == msgspec.to_builtins(one.objects)
    yard.plant.embedded.home.archive.rename(yard.plant.place / "elsewhere")
    before = sorted(yard.store.rglob("*"))
    with pytest.raises(NotFound, match="there is no directory"):
        await yard.collect(spark=True, delete=True)
    assert sorted(yard.store.rglob("*")) == before


async def test_what_spark_has_found_is_deleted_unless_the_log_names_it_by_now(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await yard.plant.run(book())
    dead, named = yard.payload(b"dead"), yard.payload(b"about to be named")
    tell = Garbage.tell

    def told(garbage: Garbage, suspects: Suspects) -> None:
        """Somebody runs what names it, after Spark has read the log."""
        tell(garbage, suspects)
        asyncio.run(name_it(yard.plant.place))

    monkeypatch.setattr(Garbage, "tell", told)
    found = await yard.collect(spark=True, delete=True)
    assert found.counts.deleted == 1
    assert not (yard.store / dead).exists()
    assert (yard.store / named).exists()


async def name_it(place: Path) -> None:
    digest = hashlib.sha256(b"about to be named").hexdigest()
    async with opened(place) as plant:
        await plant.run(book(f"result = {digest!r}"))


async def test_spark_finds_the_damage_that_one_process_finds(yard: Yard) -> None:
    """Whatever repair does about it, it does about the same objects, in the same order."""
    for number in range(3):
        await yard.plant.run(book(f"result = {{'fill': 'x' * 100_000, 'n': {number}}}"))
    listed = {
        "in": "{{ range(7) | list }}",
        "iterator": "n",
        "spec": {"mode": "fanout", "frame": {"max_rows": 3, "process": "frame"}},
    }
    frames = {**book(), "workflow": [{"step": "squares", "loop": listed, "tool": SQUARES}]}
    await yard.plant.run(frames)
    needs = [need async for need in needs_of(yard.plant.embedded.ledger)]
    results = [yard.store / need.key for need in needs if need.event.event_type == "call.done"]
    results[0].unlink()
    results[1].write_bytes(b"something else")
    inner = [one for need in needs async for one in inside_of(yard.plant.embedded.objects, need)]
    outputs = [need for need in needs if need.event.event_type == "frame.committed"]
    for one in (inner[0], outputs[1]):
        (yard.store / one.key).unlink()
    assert yard.plant.embedded.home is not None
    alone, found = [
        await repair(
            yard.plant.embedded, yard.plant.embedded.home, RepairRequest(dry_run=True, rerun=True, spark=spark)
        )
        for spark in (False, True)
    ]
    assert len(alone.objects.findings) == 4
    assert msgspec.to_builtins(found.objects) == msgspec.to_builtins(alone.objects)
    mended = await repair(yard.plant.embedded, yard.plant.embedded.home, RepairRequest(rerun=True, spark=True))
    assert [one.key for one in mended.objects.having("repaired")] == [
        one.key for one in alone.objects.having("repairable")
    ]
