"""The slots of a stage inside a Python worker of Spark.

Spark starts a function there, with an address and a token; everything else is asked for with them. A Python worker is
used again for the next task, so what is costly to make stays: one event loop, the tools with their pools, the caches.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, wait
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from noetl.data.frame.protocol import Frame, FrameOutcome, StagePlan
from noetl.data.frame.running import Ran
from noetl.engine.pipeline import RunTask
from noetl.errors import Unavailable
from noetl.kernel.event import Json
from noetl.payloads.caches import Caches
from noetl.payloads.effects import EffectStore
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.ports.objects import ObjectStore
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home
from noetl.runtime.resolver import resolver_of
from noetl.runtime.stages.body import StageBody
from noetl.runtime.stages.careful import CarefulPlane
from noetl.runtime.stages.carriers import Done, Errand, News, Round
from noetl.runtime.stages.client import RemotePlane
from noetl.runtime.stages.connections import Connections
from noetl.runtime.stages.distant_vault import DistantVault
from noetl.runtime.stages.host import StageWork, run_slots
from noetl.runtime.stages.paths import CARRIER_ROUTE
from noetl.runtime.stages.support import CallRequest, Kit
from noetl.runtime.stores import is_on_this_disk, open_objects
from noetl.runtime.tooling import python_options, registry_with
from noetl.runtime.worker import CallPlaybook, Work, Worker
from noetl.settings import Bytes, Settings
from noetl.tools.base import Outcome
from noetl.tools.python.inline import InlinePythonTool
from noetl.tools.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Post", "run_carrier"]

_Row = tuple[int, int, int]
_Told = queue.SimpleQueue[_Row]
_YOUNG_OBJECTS = 20_000
_PAUSE = 0.2
_TRIES = 5
_PROGRESS_SECONDS = 0.25
"""How often the job hears of frames. Each time costs the slots a moment."""


class Post(msgspec.Struct, frozen=True):
    """What Spark carries to a carrier: where it asks for slots, and what opens that door."""

    url: str
    token: str


def run_carrier(post: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run slots of stages until there are none. The one row of its input says nothing."""
    for _ in batches:
        yield from _run(msgspec.json.decode(post, type=Post))


def _run(post: Post) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    schema = pa.schema({"frame": pa.int64(), "slot": pa.int32(), "rows": pa.int64()})
    told: _Told = queue.SimpleQueue()
    running: Future[None] = asyncio.run_coroutine_threadsafe(_Carrying(post, told).run(), _loop())
    is_over = False
    while not is_over:
        is_over = bool(wait({running}, _PROGRESS_SECONDS).done)
        if rows := [told.get() for _ in range(told.qsize())]:
            frames, slots, counts = zip(*rows, strict=True)
            columns = {"frame": list(frames), "slot": list(slots), "rows": list(counts)}
            yield pa.RecordBatch.from_pydict(columns, schema)
    running.result()


class _Carrying:
    """The errands of a carrier, side by side."""

    def __init__(self, post: Post, told: _Told) -> None:
        self._connections = Connections(
            post.url, {"Authorization": f"Bearer {post.token}", "Content-Type": "application/json"}
        )
        self._told = told
        self._running: dict[int, asyncio.Task[None]] = {}
        self._done: list[Done] = []

    async def run(self) -> None:
        """Ask for errands and run them, until there are none. Raises Unavailable if nobody answers."""
        try:
            while not (news := await self._news()).is_over:
                for errand in news.errands:
                    self._running[errand.number] = asyncio.create_task(_slots(errand, self._told))
                for number in news.dropped:
                    if number in self._running:
                        self._running[number].cancel()
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            await self._connections.close()

    async def _news(self) -> News:
        """What there is to do. An errand that ends is told at once: an answer that is given up is given again."""
        while True:
            said = tuple(self._done)
            asking = asyncio.create_task(self._ask(Round(held=tuple(self._running), done=said)))
            try:
                await asyncio.wait({asking, *self._running.values()}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                asking.cancel()
                raise
            for number in [number for number, task in self._running.items() if task.done()]:
                self._done.append(_ending(number, self._running.pop(number)))
            if asking.done():
                del self._done[: len(said)]
                return asking.result()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self, asked: Round) -> News:
        problem = "no answer"
        for tried in range(_TRIES):
            try:
                status, body = await self._connections.post(CARRIER_ROUTE, msgspec.json.encode(asked))
            except (OSError, EOFError, ValueError, KeyError, asyncio.LimitOverrunError) as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if status == HTTPStatus.OK:
                    return msgspec.json.decode(body, type=News)
                if status == HTTPStatus.UNAUTHORIZED:
                    return News(is_over=True)
                problem = f"status {status}"
            await asyncio.sleep(_PAUSE * 2**tried)
        raise Unavailable(f"whoever has started the carrier cannot be reached: {problem}")


def _ending(number: int, task: asyncio.Task[None]) -> Done:
    if task.cancelled() or (error := task.exception()) is None:
        return Done(number=number)
    detail = "".join(traceback.format_exception(error))
    return Done(number=number, message=f"{type(error).__name__}: {error}", detail=detail)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process, in a thread of its own: heartbeats go on while Spark has the main one."""
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    gc.freeze()  # modules, and there are many: nothing to be looked through again and again
    gc.set_threshold(_YOUNG_OBJECTS)
    threading.Thread(target=loop.run_forever, name="noetl-slots", daemon=True).start()
    return loop


async def _slots(asked: Errand, told: _Told) -> None:
    async with RemotePlane(asked.url, asked.stage_id, asked.token) as plane:
        kit = await plane.kit()
        shop = await _shop_of(kit)
        worker = Worker(
            shop.registry, shop.clock, _never, Path(kit.directory), Path(kit.scratch), DistantVault(plane),
            effects=EffectStore(shop.objects) if kit.settings.effects.barrier else None,
            call_playbook=_calls_through(plane),
        )  # fmt: skip
        place: Json = {"host": "spark", "node": socket.gethostname(), "process": os.getpid(), "task": asked.worker}
        work = _ToldWork(kit.plan, StageBody(worker, kit.plan), shop, place, told)
        ours = CarefulPlane(plane) if asked.is_careful else plane
        await run_slots(kit.plan, ours, asked.slots, work, shop.clock, asked.worker)


class _ToldWork(StageWork):
    """The work of slots, with a row of progress for each frame."""

    def __init__(self, plan: StagePlan, body: StageBody, shop: _Shop, place: Json, told: _Told) -> None:
        tiers = shop.tiers.of_tenant(plan.tenant)
        super().__init__(plan, body, tiers, shop.results.of_tenant(plan.tenant), place)
        self._told = told

    async def keep(self, frame: Frame, ran: Ran) -> FrameOutcome:
        """Store the output of a frame, and tell of it."""
        outcome = await super().keep(frame, ran)
        self._told.put((frame.frame_id, frame.slot, outcome.rows))
        return outcome


# --- What stays from task to task ---------------------------------------------------------------------------


class _Shop(msgspec.Struct, frozen=True, kw_only=True):
    """Stores and tools of an installation."""

    clock: SystemClock
    objects: ObjectStore
    tiers: PayloadTiers
    results: ResultStore
    registry: Registry


_shops: dict[bytes, asyncio.Future[_Shop]] = {}


async def _shop_of(kit: Kit) -> _Shop:
    """The one of this installation; made by whichever task comes first."""
    key = msgspec.json.encode((kit.settings, kit.home, kit.directory, kit.scratch))
    if key not in _shops:
        _settle_in(kit.directory)
        _shops[key] = asyncio.ensure_future(_open_shop(kit))
    try:
        return await asyncio.shield(_shops[key])
    except BaseException:
        if key in _shops and _shops[key].done():
            del _shops[key]  # the next task tries again
        raise


def _settle_in(directory: str) -> None:
    """Be where the code of bodies expects to be: a Python worker serves one directory only."""
    if Path(directory).is_dir():
        os.chdir(directory)
        if directory not in sys.path:
            sys.path.insert(0, directory)


async def _open_shop(kit: Kit) -> _Shop:
    settings, home, clock = kit.settings, Home(Path(kit.home)), SystemClock()
    objects = await open_objects(home, settings)
    store = PayloadStore(objects, settings.tenant.id, settings.tenant.project)
    # Nothing is shared through memory from here: Spark ends these processes as it likes.
    budgets = msgspec.structs.replace(settings.payloads, shared_memory=Bytes(0))
    cache = None if is_on_this_disk(settings) else home.path / "cache"
    tiers = PayloadTiers(store, Caches(budgets, clock, node_id=settings.place.node, disk_directory=cache))
    return _Shop(
        clock=clock,
        objects=objects,
        tiers=tiers,
        results=ResultStore(objects, store, tiers),
        registry=_registry(settings, Path(kit.scratch)),
    )


def _registry(settings: Settings, scratch: Path) -> Registry:
    made = {"python": InlinePythonTool(**python_options(settings, scratch))}
    return registry_with(settings, scratch, resolver_of(settings), made)


# --- Calls of playbooks -------------------------------------------------------------------------------------


async def _never(work: Work, asked: RunTask) -> Json | Outcome:
    raise AssertionError("a row waits for its calls")


def _calls_through(plane: RemotePlane) -> CallPlaybook:
    async def call(work: Work, asked: RunTask, key: str) -> Outcome:
        said = await plane.call(
            CallRequest(
                key=key,
                task=asked.task.name,
                input=asked.input,
                fields=asked.fields,
                timeout=asked.timeout,
                own_timeout=asked.task.timeout,
            )
        )
        return Outcome(result=said.result, error=said.error)

    return call
