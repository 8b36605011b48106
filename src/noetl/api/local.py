"""Running playbooks in this process, on a home."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from noetl.api.asking import Again, Job, Outcome, asked_from
from noetl.api.portal import Portal
from noetl.api.run import Page
from noetl.api.sources import Reference, Source, in_catalog, register_beside, unknown
from noetl.api.state import Proof, State, proof_of, state_of
from noetl.api.summaries import Summary, summary_of, worker_slots
from noetl.errors import NotFound
from noetl.kernel.event import Envelope
from noetl.kernel.streams import execution_of, execution_stream
from noetl.kernel.tail import Stream
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.runtime.driver import Driver, Request
from noetl.runtime.embedded.alone import alone_with
from noetl.runtime.embedded.runner import (
    Finished,
    Runner,
    cancel_tree,
    driver_of,
    inspect,
    open_runner,
)
from noetl.runtime.home import Home
from noetl.runtime.logs import LogPage, kept_logs, read_logs
from noetl.runtime.origin import origin_of
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings, load, resolve_home

if TYPE_CHECKING:
    from noetl.replay.evidence import Given
    from noetl.replay.service import Cutoff

__all__ = ["Local"]

T = TypeVar("T")
Deliver = Callable[[Envelope], None]

_log = logging.getLogger("noetl.api")
_GRACE = 10.0  # seconds that running tools have once their execution was cancelled


class _Listener:
    """Passes on the events of one execution and of those it has called; the runner may be running others as well."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._family: set[int] = set()
        self._early: list[Envelope] = []

    def begin(self, execution_id: int) -> None:
        """From now on it is known which execution is meant."""
        self._family.add(execution_id)
        early, self._early = self._early, []
        self.notice(early)

    def notice(self, events: Sequence[Envelope]) -> None:
        if not self._family:
            self._early += events
            return
        for event in events:
            if event.parent_execution_id in self._family and event.execution_id is not None:
                self._family.add(event.execution_id)
            if event.execution_id in self._family:
                self._deliver(event)


class _Kept(msgspec.Struct, frozen=True):
    """A home that stays open, with a runner at work."""

    embedded: Embedded
    runner: Runner


class Local:
    """A home. It is opened for each call, unless a session keeps it open."""

    def __init__(self, home: str | os.PathLike[str] | None = None, tenant: str | None = None) -> None:
        self._directory = Path.cwd()
        chosen = None if home is None else os.fspath(home)
        self._settings: Settings = load(environ=os.environ, cwd=self._directory, flags={"tenant.id": tenant})
        elsewhere = self._settings.ledger.url is not None
        self.home = Home(resolve_home(chosen, os.environ, self._directory), elsewhere=elsewhere)
        self._listeners: list[_Listener] = []
        self._kept: _Kept | None = None
        self.portal: Portal | None = None

    @contextlib.asynccontextmanager
    async def kept_open(self) -> AsyncIterator[None]:
        """Keep the home and one runner open for all calls meanwhile."""
        async with self._opened(create=True) as embedded, self._runner(embedded) as runner:
            self._kept = _Kept(embedded, runner)
            try:
                yield
            finally:
                self._kept = None

    # --- Running ------------------------------------------------------------------------------------------

    async def run(self, job: Job, deliver: Deliver) -> Outcome:
        """Run a job to its end. If this is cancelled, so is the execution."""
        if isinstance(job.what, Reference) and not self.home.has_ledger():
            raise unknown(job.what.path)
        create = isinstance(job.what, Source)
        async with self._opened(create=create) as embedded, self._runner(embedded) as runner:
            request = await self._request(embedded, job)
            return await self._drive(embedded, runner, request, job.timeout, deliver)

    async def retry(self, execution_id: int, again: Again) -> Outcome:
        """Run a new execution that goes on from a step of an earlier one, to its end."""
        from noetl.runtime.fork import Forks, Retry

        async with self._opened() as embedded, self._runner(embedded) as runner:
            forks = Forks(embedded.ledger, embedded.payloads, runner.driver, self._settings.tenant.id)
            asked = Retry(execution_id=execution_id, step=again.step, workload=again.workload, key=again.key)
            return await self._drive(embedded, runner, await forks.plan(asked), again.timeout, lambda _: None)

    async def _drive(
        self, embedded: Embedded, runner: Runner, request: Request, seconds: float | None, deliver: Deliver
    ) -> Outcome:
        async with contextlib.AsyncExitStack() as held:
            if request.key is not None:  # two calls with one key: the second waits, and finds it done
                name = hashlib.sha256(f"{self._settings.tenant.id}\0{request.key}".encode()).hexdigest()
                await held.enter_async_context(self._alone(embedded, f"key-{name}"))
            listener = _Listener(deliver)
            self._listeners.append(listener)
            held.callback(self._listeners.remove, listener)
            execution_id = await runner.start(request)
            listener.begin(execution_id)
            async with self._alone(embedded, str(execution_id)):
                timed_out = not await self._work(runner, execution_id, seconds)
            finished = await runner.wait(execution_id)
            return Outcome(summary=await summary_of(embedded, finished), timed_out=timed_out)

    async def _work(self, runner: Runner, execution_id: int, seconds: float | None) -> bool:
        """Work until the end; False if it took too long and was cancelled."""
        waiting = asyncio.timeout(seconds)
        try:
            async with waiting:
                await runner.resume(execution_id)
                finished = await runner.wait(execution_id)
        except asyncio.CancelledError:
            await self._stop(runner, execution_id, "interrupted")
            raise
        except TimeoutError:
            if not waiting.expired():
                raise
            await self._stop(runner, execution_id, f"took longer than {seconds:g} s")
            return False
        if finished.status == "CANCELLED" and self._kept is None:
            await runner.settle(_GRACE)
        return True

    async def _stop(self, runner: Runner, execution_id: int, reason: str) -> None:
        await runner.cancel(execution_id, reason)
        if self._kept is None:  # a runner that is shared goes on with what others have asked for
            await runner.settle(_GRACE)

    async def _request(self, embedded: Embedded, job: Job) -> Request:
        tenant = self._settings.tenant.id
        source = job.what if isinstance(job.what, Source) else await in_catalog(embedded, tenant, job.what)
        await register_beside(embedded, tenant, source)
        root = None
        if job.parent_execution_id is not None:
            parent = await self._driver(embedded).execution(job.parent_execution_id)
            root = parent.control.root_execution_id or job.parent_execution_id
        return Request(
            document=source.text, file=source.file, origin=source.origin, workload=job.workload, key=job.key,
            parent_execution_id=job.parent_execution_id, root_execution_id=root, trace=asked_from(os.environ),
        )  # fmt: skip

    async def register(self, source: Source) -> list[dict[str, Any]]:
        """Put every document of a source into the catalog, each as the next version of its path."""
        tenant = self._settings.tenant.id
        documents = [(one.path, one.kind, one.text) for one in source.beside]
        documents.append((source.path, "Playbook", source.text))
        async with self._opened(create=True) as embedded:
            entries = [await embedded.catalog.register(tenant, *document) for document in documents]
        return [{"path": entry.path, "version": entry.version, "kind": entry.kind} for entry in entries]

    # --- Asking -------------------------------------------------------------------------------------------

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller that waits: in the session's loop, or in one of its own."""
        if self.portal is not None:
            return self.portal.call(work)
        with Portal() as portal:
            return portal.call(work)

    async def executions(self, status: str | None, path: str | None, limit: int) -> list[Summary]:
        """Executions, newest first."""
        where: dict[str, str | int] = {n: v for n, v in (("status", status), ("path", path)) if v is not None}
        if not self.home.has_ledger():
            return []
        async with self._opened() as embedded:
            await embedded.projector.catch_up()
            page = await embedded.projections.query(
                "execution", tenant_id=self._settings.tenant.id, where=where, limit=limit
            )
            ids = [execution_of(row.root.stream_id) for row in page.rows]
            return [await self._summary(embedded, found) for found in ids if found is not None]

    async def summary(self, execution_id: int) -> Summary:
        """What has become of an execution."""
        async with self._opened() as embedded:
            return await self._summary(embedded, execution_id)

    async def wait(self, execution_id: int, seconds: float | None) -> Summary:
        """The same, once somebody has brought it to its end."""
        async with self._opened() as embedded, asyncio.timeout(seconds):
            reached = await embedded.ledger.position()
            summary = await self._summary(embedded, execution_id)
            if summary.ended:
                return summary
            async for item in embedded.ledger.subscribe(after_position=reached):
                ends = canonical_type(item.event.event_type) in TERMINAL_TYPES
                if ends and item.event.execution_id == execution_id:
                    break
            return await self._summary(embedded, execution_id)

    async def result(self, execution_id: int, step: str) -> Any:
        """The whole result of a step that has ended."""
        async with self._opened() as embedded:
            driver = self._driver(embedded)
            found = await driver.execution(execution_id)
            states = found.control.steps
            if step not in states or states[step].state != "ended":
                ended = ", ".join(name for name, state in states.items() if state.state == "ended")
                raise NotFound(
                    f"execution {execution_id} has no result of step '{step}'", hint=f"steps that ended: {ended}"
                )
            return await driver.keeper.result_of(found, step)

    async def events(self, execution_id: int, after: int, limit: int, types: Collection[str]) -> Page:
        """Events after a position, and the position to go on from."""
        async with self._opened() as embedded:
            page = await embedded.ledger.read_root(self._root(execution_id), after_position=after, limit=limit)
            if not page and after == 0:
                await self._known(embedded, execution_id)
        wanted = [item.event for item in page if not types or canonical_type(item.event.event_type) in types]
        return wanted, page[-1].position if len(page) == limit else None

    async def logs(self, execution_id: int, step: str | None, after: int) -> LogPage:
        """What tasks printed, from a place on."""
        async with self._opened() as embedded:
            await self._known(embedded, execution_id)
        return await read_logs(self.home.path, self._settings.tenant.id, execution_id, step, after)

    async def replay(self, execution_id: int, cutoff: Cutoff) -> State:
        """The state as of a moment."""
        async with self._opened() as embedded:
            return state_of(await embedded.replayer.replay(self._root(execution_id), cutoff), execution_id)

    async def verify(self, execution_id: int) -> Proof:
        """Whether the log is what was written."""
        async with self._opened(examine=True) as embedded:
            await self._known(embedded, execution_id)
            await embedded.projector.catch_up()
            return proof_of(await embedded.verifier.verify(self._root(execution_id)), execution_id)

    async def evidence(self, execution_id: int, directory: Path, sign: bool) -> Given:
        """Write evidence into a new directory."""
        from noetl.runtime.evidence import evidence_of, signer_of

        async with self._opened(examine=True) as embedded:
            await self._known(embedded, execution_id)
            await embedded.projector.catch_up(snapshots=False)
            signer = await signer_of(self.home) if sign else None
            return await evidence_of(embedded).write(self._root(execution_id), directory, signer=signer)

    async def cancel(self, execution_id: int, reason: str, cascade: bool) -> bool:
        """End an execution; False if it has ended already."""
        async with self._opened() as embedded:
            driver = self._kept.runner.driver if self._kept is not None else self._driver(embedded)
            cancelled = await cancel_tree(embedded, driver, execution_id, reason, cascade=cascade)
            await embedded.projector.catch_up()
        return execution_id in cancelled

    # --- Below --------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _opened(self, *, create: bool = False, examine: bool = False) -> AsyncIterator[Embedded]:
        if self._kept is not None:
            yield self._kept.embedded
            return
        async with open_embedded(self.home, self._settings, create=create, examine=examine) as embedded:
            yield embedded

    @contextlib.asynccontextmanager
    async def _runner(self, embedded: Embedded) -> AsyncIterator[Runner]:
        if self._kept is not None:
            yield self._kept.runner
            return
        async with (
            kept_logs(self.home.path, embedded.clock, _log.warning) as keep,
            open_runner(
                embedded,
                origin_of(self._settings),
                directory=self._directory,
                scratch=self.home.path / "scratch",
                slots=worker_slots(self._settings),
                on_events=self._notice,
                on_notice=keep,
            ) as runner,
        ):
            yield runner

    def _notice(self, events: Sequence[Envelope]) -> None:
        for listener in self._listeners:
            listener.notice(events)

    def _alone(self, embedded: Embedded, name: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Keep other processes from working on the same thing at the same time."""
        return alone_with(embedded, origin_of(self._settings), self.home.path, name, lambda: None)

    def _driver(self, embedded: Embedded) -> Driver:
        return driver_of(embedded, origin_of(self._settings))

    def _root(self, execution_id: int) -> Stream:
        return Stream(self._settings.tenant.id, execution_stream(execution_id))

    async def _known(self, embedded: Embedded, execution_id: int) -> None:
        if await embedded.ledger.head(self._root(execution_id)) is None:
            raise NotFound(f"there is no execution {execution_id}", hint="noetl list shows the ones there are")

    async def _summary(self, embedded: Embedded, execution_id: int) -> Summary:
        finished: Finished = await inspect(embedded, origin_of(self._settings), execution_id)
        return await summary_of(embedded, finished)
