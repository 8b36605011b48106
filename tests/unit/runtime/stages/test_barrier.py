"""The barrier of frames: one that was run to its end is not run again, whoever is lost before it is committed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.data.frame.output import claimed_table
from noetl.data.frame.protocol import Frame, FrameOutcome
from noetl.kernel.event import Json, PayloadRef
from noetl.payloads.caches import Caches
from noetl.payloads.effects import EffectStore
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.runtime.stages.body import StageBody
from noetl.runtime.stages.host import StageWork
from noetl.runtime.worker import Worker
from noetl.settings import Bytes, Payloads
from noetl.tools.base import Call, Outcome, Rendering, failed, ok
from noetl.tools.registry import Registry
from tests.stagework import TENANT, plan_of

DOCUMENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t}
workflow:
  - step: load
    loop: {cursor: {kind: postgres, auth: pg, claim: "SELECT 1"}, iterator: row, spec: {mode: cursor}}
    tool: {kind: http, method: POST, url: "{{ row.id }}"SPEC}
"""


class Letters:
    """Writes down what was sent, and fails for what it is told to."""

    kind = "http"
    rendering: Mapping[str, Rendering] = {}
    required: tuple[tuple[str, ...], ...] = ()

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.poison: set[Any] = set()
        self.answer: Json = {"sent": True}

    def side_effecting(self, fields: Json) -> bool:
        return True

    async def run(self, call: Call) -> Outcome:
        self.sent.append(call.fields["url"])
        return failed("http_4xx", "HTTP_400", "no") if call.fields["url"] in self.poison else ok(self.answer)

    async def close(self) -> None:
        """Nothing is open."""


class Place:
    """A store that all processes share, and the world outside."""

    def __init__(self) -> None:
        self.objects = MemoryObjectStore()
        self.letters = Letters()

    def process(self, *, barrier: bool = True, spec: str = "") -> StageWork:
        """What the slots of another process do with frames."""
        caches = Caches(Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0)), VirtualClock(0))
        store = PayloadStore(self.objects, TENANT, "shop")
        tiers = PayloadTiers(store, caches)
        effects = EffectStore(self.objects) if barrier else None
        registry = Registry({"http": self.letters})
        worker = Worker(registry, VirtualClock(0), _no_calls, Path(), Path(), effects=effects)
        plan = plan_of("loop", max_rows=5)
        source = {"cursor": {"kind": "postgres", "auth": {}, "claim": ""}}
        plan = msgspec.structs.replace(plan, document=DOCUMENT.replace("SPEC", spec), source=source)
        return StageWork(plan, StageBody(worker, plan), tiers, ResultStore(self.objects, store, tiers))

    async def rows(self, count: int) -> PayloadRef:
        from noetl.payloads.formats import MEDIA_TYPES, feather_pieces

        table: pa.Table = claimed_table([{"id": number} for number in range(count)])
        store = PayloadStore(self.objects, TENANT, "shop")
        return await store.store(b"".join(feather_pieces(table)), media_type=MEDIA_TYPES["feather"], rows=count)

    async def effects(self) -> list[str]:
        return [info.key async for info in self.objects.list() if info.key.endswith("/effect.bin")]


async def _no_calls(*_: Any) -> Json:
    raise AssertionError("nothing is called")


@pytest.fixture
def place() -> Place:
    return Place()


async def frame(place: Place, attempt: int = 1) -> Frame:
    rows = await place.rows(3)
    return Frame(
        frame_id=70, slot=1, index=4, claim_index=4, attempt=attempt, row_count=3, rows=rows, token=f"k{attempt}"
    )


async def run(work: StageWork, frame: Frame) -> FrameOutcome:
    return await work.keep(frame, await work.run(frame))


@pytest.mark.parametrize("much", [False, True])
async def test_a_frame_that_was_run_to_its_end_is_adopted_with_its_output(much: bool, place: Place) -> None:
    place.letters.answer = {"sent": "x" * 9000 if much else True}
    first = await run(place.process(), await frame(place))
    assert len(place.letters.sent) == 3
    (key,) = await place.effects()
    assert key.endswith("/results/load~1/e1.s1.f4/effect.bin")

    again = await run(place.process(), await frame(place, attempt=2))
    assert len(place.letters.sent) == 3
    assert (again.rows, again.outcomes, again.output) == (first.rows, first.outcomes, first.output)
    assert (again.output is not None, again.returned is not None) == (much, not much)
    assert again.returned == first.returned
    assert (again.token, again.adopted) == ("k2", 1)


async def test_without_the_barrier_it_is_run_again(place: Place) -> None:
    await run(place.process(barrier=False), await frame(place))
    again = await run(place.process(barrier=False), await frame(place, attempt=2))
    assert (len(place.letters.sent), again.adopted) == (6, 0)


async def test_what_has_no_effect_is_not_guarded(place: Place) -> None:
    spec = ", spec: {side_effecting: false}"
    await run(place.process(spec=spec), await frame(place))
    assert await place.effects() == []
    await run(place.process(spec=spec), await frame(place, attempt=2))
    assert len(place.letters.sent) == 6


async def test_a_row_that_failed_has_another_chance_and_the_others_are_not_sent_twice(place: Place) -> None:
    place.letters.poison = {1}
    first = await run(place.process(), await frame(place))
    assert (first.outcomes, await place.effects()) == ({"ok": 2, "error": 1}, [])
    place.letters.poison = set()
    again = await run(place.process(), await frame(place, attempt=2))
    assert again.outcomes == {"ok": 3}
    assert place.letters.sent == [0, 1, 2, 1]


async def test_of_two_that_run_the_same_frame_the_first_counts(place: Place) -> None:
    slow, fast = place.process(), place.process()
    one, other = await frame(place), await frame(place, attempt=2)
    late = await slow.run(one)
    counted = await run(fast, other)
    said = await slow.keep(one, late)
    assert (said.output, said.adopted, said.token) == (counted.output, 2, "k1")


async def test_one_whose_output_is_gone_is_run_again_under_the_same_keys(place: Place) -> None:
    place.letters.answer = {"sent": "x" * 9000}
    first = await run(place.process(), await frame(place))
    assert first.output is not None
    assert first.output.key is not None
    await place.objects.delete(first.output.key)
    again = await run(place.process(), await frame(place, attempt=2))
    assert again.adopted == 0
    assert again.output is not None
    assert len(place.letters.sent) == 3  # the rows have a barrier of their own


async def test_one_that_was_damaged_is_adopted_by_nobody(place: Place) -> None:
    await run(place.process(), await frame(place))
    (key,) = await place.effects()
    await place.objects.put(key, b"rubbish", overwrite=True)
    said = await run(place.process(), await frame(place, attempt=2))
    assert said.error is not None
    assert key in said.error["message"]
    assert len(place.letters.sent) == 3
