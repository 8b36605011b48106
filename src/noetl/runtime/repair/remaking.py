"""Sources that make a result again: a loop's from those of its iterations, a task's by running it once more.

The execution is loaded as it was just before the event that refers to the result. What is made is put into a directory
of its own, in the very form in which results are stored, and offered from there: it counts only if it is the same to
the byte.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.engine.decide import Report
from noetl.engine.fact import Fact
from noetl.errors import InvalidInput
from noetl.kernel.event import Json, Recorded
from noetl.kernel.streams import execution_stream
from noetl.kernel.time import format_time
from noetl.payloads.caches import Caches
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import Tiers
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.control import work_of
from noetl.runtime.execution import Execution
from noetl.runtime.inputs import with_results
from noetl.runtime.keeping import Keeper
from noetl.runtime.loading import Documents, Loader
from noetl.runtime.origin import origin_of
from noetl.runtime.repair.needs import Need
from noetl.runtime.wiring import Embedded
from noetl.runtime.worker import Work, Worker, with_workbook
from noetl.settings import Bytes, Payloads
from noetl.tools.registry import Registry, UserKinds

__all__ = ["Bench", "LoopSource", "RerunSource"]

_NO_CACHES = Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0))


class Bench:
    """Where results are made again."""

    def __init__(self, embedded: Embedded, directory: Path) -> None:
        self.embedded = embedded
        self._objects = FilesystemObjectStore(directory)

    def keeper(self, need: Need) -> Keeper:
        """A keeper that reads from the installation and writes to the bench."""
        here = self.embedded.of_tenant(need.event.tenant_id)
        own = PayloadStore(self._objects, need.event.tenant_id, need.event.project_id)
        results = ResultStore(self._objects, own, Tiers(own, Caches(_NO_CACHES, here.clock)))
        return Keeper(here.payloads, results, here.clock, need.event.project_id)

    async def before(self, need: Need) -> Execution | None:
        """The execution as it was when the event was about to be written; None for an event that decides nothing.

        Raises NotFound and Corruption where that needs something that is lost itself.
        """
        event = need.event
        if event.execution_id is None or event.stream_id != execution_stream(event.execution_id) or not need.is_own:
            return None
        here = self.embedded.of_tenant(event.tenant_id)
        loader = Loader(
            cast(Ledger, _Until(here.ledger, event.stream_version - 1)),
            here.keeper(event.project_id),
            Documents(UserKinds()),
            event.tenant_id,
        )
        return await loader.load(event.execution_id)

    def made(self, key: str) -> AsyncIterator[bytes]:
        """What was put on the bench."""
        return self._objects.stream(key)


class _Until:
    """A ledger that ends with a version of a stream, for whoever only reads that stream."""

    def __init__(self, ledger: Ledger, last: int) -> None:
        self._ledger = ledger
        self._last = last

    async def read(self, stream: Stream, *, after_version: int = 0, limit: int = 1000) -> Sequence[Recorded]:
        return await self._ledger.read(stream, after_version=after_version, to_version=self._last, limit=limit)


class LoopSource:
    """The results of iterations, put together as they were when the loop ended."""

    name = "iterations"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """The result of a loop."""
        event = need.event
        if event.event_type != "loop.done" or need.ref.key is None or need.ref != event.payload_ref:
            return
        execution = await self._bench.before(need)
        step = event.node_name or ""
        if execution is None or step not in execution.iterations:
            return
        result = event.payload["result"]
        whole = {**result["context"], "results": execution.iterations[step]}
        told: Json = {"result": {"status": result["status"], "context": whole}}
        fact = Fact(event_type=event.event_type, node_name=step, payload=told, large=("result",))
        _, ref = await self._bench.keeper(need).fitting(execution, fact)
        if ref is not None and ref.key is not None:
            yield self._bench.made(ref.key)


class RerunSource:
    """The task itself, run once more. Only one that nobody outside can notice, and only when asked to."""

    name = "running it again"

    def __init__(self, bench: Bench, worker: Worker, registry: Registry) -> None:
        self._bench = bench
        self._worker = worker
        self._registry = registry

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """What the command comes to now. Raises InvalidInput for one that may not be run again, or that fails."""
        event = need.event
        if event.event_type != "call.done" or need.ref.key is None or need.ref != event.payload_ref:
            return
        execution = await self._bench.before(need)
        if execution is None or event.command_id is None:
            return
        embedded = self._bench.embedded.of_tenant(event.tenant_id)
        origin = origin_of(embedded.settings, event.tenant_id, event.organization_id)
        work = work_of(execution, event.command_id, origin)
        if work is None:
            raise InvalidInput("the command was suspended, or is not in the log")
        self._check(work)
        keeper = embedded.keeper(event.project_id)

        async def fetch(_execution: int, step: str, reference: Json) -> Any:
            return await keeper.whole(reference)

        report = await self._worker.run(await with_results(work, fetch), lambda: format_time(embedded.clock.now()))
        if not isinstance(report, Report) or report.error is not None:
            said = "it calls a playbook" if not isinstance(report, Report) else (report.error or {}).get("message")
            raise InvalidInput(f"it did not end well: {said}")
        bench = self._bench.keeper(need)
        large = bench.large_part(execution, report)
        if large is None:
            raise InvalidInput("its result is small now")
        kept = await bench.keep(execution, report, large, _replaced)
        if kept.stored is not None and kept.stored.key is not None:
            yield self._bench.made(kept.stored.key)

    def _check(self, work: Work) -> None:
        """Raise InvalidInput unless every task says, or its tool knows, that running it twice does nothing."""
        for task in with_workbook(work.playbook, work.step).tasks:
            said = task.side_effecting
            if task.kind == "playbook" or (
                self._registry.side_effecting(task.kind, task.fields) if said is None else said
            ):
                raise InvalidInput(
                    f"task '{task.name}' may have effects", hint="spec.side_effecting: false says that it has none"
                )


async def _replaced() -> None:
    """Whatever was made before on the bench was not wanted."""
