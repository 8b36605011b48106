"""The driver: it loads what an execution has become, lets the engine decide, and commits the decision.

A report and everything that follows from it are one append: either the step has ended and the next one
is issued, or nothing has happened. Any process may drive any execution; the stream's version sees to it
that one of two wins, and the other reloads and decides again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

from noetl.engine.control import Control
from noetl.engine.decide import Report, Suspension, awaited, lost_report
from noetl.engine.fact import Fact
from noetl.engine.fork import Fork
from noetl.engine.scope import Known
from noetl.errors import IdempotencyMismatch, Unavailable, VersionConflict
from noetl.kernel.event import Draft, Envelope, Json
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream
from noetl.kernel.time import format_time
from noetl.observe.traces import within
from noetl.payloads.results import Replacing
from noetl.playbook.document import Playbook
from noetl.ports.clock import Clock
from noetl.ports.leases import LeasesLost
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.contested import Contested
from noetl.runtime.drafting import drafted
from noetl.runtime.execution import Execution, pending_of, suspended_of
from noetl.runtime.fence import Fence, Hold
from noetl.runtime.keeping import Keeper, ReportBatch
from noetl.runtime.lines import Arrived, Line, Lines
from noetl.runtime.loading import Documents, Loader
from noetl.runtime.opening import opening_of
from noetl.runtime.requests import Issued, Origin, Request
from noetl.runtime.tracing import Trace, place_of

__all__ = ["Driver", "Execution", "Issued", "Origin", "Request", "pending_of", "suspended_of"]

_KEPT = 256
_TRIES = 10
MOST_ABANDONS = 20
"""How many workers a command may lose before it fails."""
_GATHER_SECONDS = 0.002
_DELIVERED = frozenset({"command.issued", "command.resumed", "command.abandoned"})
"""Events after which a worker is wanted for their command."""


class Driver:
    """Drives executions of one ledger. Commands to be run are handed to `on_issued`."""

    def __init__(
        self,
        ledger: Ledger,
        keeper: Keeper,
        clock: Clock,
        origin: Origin,
        new_id: Callable[[], int],
        on_issued: Callable[[Issued], None],
        kinds: Collection[str] = (),
        on_events: Callable[[Sequence[Envelope]], None] = lambda _: None,
        admit: Callable[[Playbook, Json], Awaitable[None]] | None = None,
        env: Mapping[str, str] | None = None,
        on_unsure: Callable[[Execution], None] = lambda _: None,
        route: Callable[[Execution, list[Fact]], Awaitable[list[Fact]]] | None = None,
    ) -> None:
        """`on_unsure` gets an execution of which it was not known for a while what had been committed.

        `route` adds to commands where they are to run, before they are written.
        """
        self._route = route or _unrouted
        self._ledger = ledger
        self.keeper = keeper
        self._clock = clock
        self._origin = origin
        self._new_id = new_id
        self._on_issued = on_issued
        self._on_events = on_events
        self._admit = admit
        self._env = env or {}
        self._on_unsure = on_unsure
        self._unsure: set[int] = set()
        self._contested = Contested()
        self._executions: OrderedDict[int, Execution] = OrderedDict()
        self._line = Lines().of
        self._documents = Documents(kinds)
        self._loader = Loader(ledger, keeper, self._documents, origin.tenant_id)

    async def start(self, request: Request) -> int:
        """Begin an execution and return its id. The same key gives the same execution again."""
        known = await self._started(request)
        if known is not None:
            return known
        playbook = self._documents.playbook(request.document, request.file, request.entry)
        if self._admit is not None:
            await self._admit(playbook, request.workload)
        ref = await self._documents.stored(request.document, self.keeper.payloads, self._clock.now())
        execution_id = request.execution_id or self._new_id()
        stream = Stream(self._origin.tenant_id, execution_stream(execution_id))
        control = Control(execution_id=execution_id)
        now = format_time(self._clock.now())
        opening = opening_of(request, playbook, ref, execution_id, self._origin, now, self._env)
        execution = Execution(stream, playbook, control, request.document, request.file)
        execution.principal = request.principal or self._origin.principal
        execution.trace = Trace.begin(request.trace)
        facts = await self._route(execution, await self._first_facts(execution, opening, request.fork))
        try:
            events = await self._append(execution, facts, 0, key=request.key)
        except IdempotencyMismatch:
            known = await self._started(request)
            if known is None:
                raise
            return known  # somebody started it with this key a moment ago
        except VersionConflict:
            if request.execution_id is not None:
                raise
            return await self.start(request)  # another process has drawn the same id in the same millisecond
        self._keep(execution_id, execution)
        self._settle(execution, facts, events)
        return execution_id

    async def _first_facts(self, execution: Execution, opening: Json, fork: Fork | None) -> list[Fact]:
        if fork is None:
            return execution.engine.start(execution.control, opening, self._known(execution))
        adopted = {one.step: one.state for one in fork.steps}
        await self.keeper.bring(execution, adopted)
        return execution.engine.fork(execution.control, opening, fork, self._known(execution))

    async def _started(self, request: Request) -> int | None:
        """The execution that this request has started before, if it has a key and did."""
        if request.key is None:
            return None
        found = await self._ledger.by_key(self._origin.tenant_id, request.key)
        return None if found is None else found.event.execution_id

    async def report(self, execution_id: int, report: Report, hold: Hold | None = None) -> bool:
        """A worker has finished a command; False if it was not in flight any more. Raises LeasesLost for its `hold`.

        Reports that arrive while a commit is under way are decided together and committed as one: many
        iterations of a loop then share the cost of one write to disk.
        """
        line = self._line(execution_id)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line.inbox.append(Arrived(report, answer, hold))
        if len(line.inbox) >= line.wanted:
            line.enough.set()
        try:
            async with line:
                if not answer.done():
                    await self._gather(execution_id, line)
                    await self._drain(execution_id, line)
            return await answer
        except asyncio.CancelledError:
            line.inbox = [one for one in line.inbox if one.answer is not answer]  # its worker has lost the command
            raise

    async def _gather(self, execution_id: int, line: Line) -> None:
        """Wait a moment for more reports where more are under way: those of a loop with many iterations in flight."""
        execution = self._executions.get(execution_id)
        loops = execution.control.loops.values() if execution is not None else ()
        line.wanted = max((loop.in_flight for loop in loops), default=0) // 2
        if len(line.inbox) < line.wanted:
            line.enough.clear()
            timer = asyncio.get_running_loop().call_later(_GATHER_SECONDS, line.enough.set)
            await line.enough.wait()
            timer.cancel()
        line.wanted = 0

    async def _drain(self, execution_id: int, line: Line) -> None:
        """Decide everything that waits, and tell each who waits what came of it."""
        waiting, line.inbox = line.inbox, []
        taken: list[bool] = []
        while waiting:
            try:
                taken = await self._decide(execution_id, waiting)
                break
            except LeasesLost as lost:  # the others are decided without them
                for one in [one for one in waiting if one.is_void(lost)]:
                    one.refuse(lost)
                    waiting.remove(one)
            except asyncio.CancelledError:
                line.inbox = [one for one in waiting if not one.answer.done()] + line.inbox
                raise
            except Exception as error:  # nobody may be left waiting, whatever it was
                for one in waiting:
                    one.refuse(error)
                return
        for one, was_taken in zip(waiting, taken, strict=True):
            one.answer.set_result(was_taken)

    async def _decide(self, execution_id: int, waiting: Sequence[Arrived]) -> list[bool]:
        """Decide reports together and commit them as one; says of each whether it was wanted. Raises LeasesLost."""
        taken: list[bool] = []
        reports = [one.report for one in waiting]
        fence = Fence(self._ledger, [one.hold for one in waiting])
        batch = ReportBatch(reports, self.keeper, self._check_current, fence.check)

        def decide(execution: Execution) -> list[Fact]:
            facts: list[Fact] = []
            taken.clear()
            for place, report in enumerate(reports):
                command = awaited(execution.control, report)
                taken.append(command is not None)
                if command is not None:
                    if command.index is not None and execution.control.ended is None:
                        execution.note_iteration(command.step, command.index, report.result, report.error)
                    elif place in batch.large:
                        execution.results[command.step] = batch.large[place].value
                    known, said = self._known(execution, report), batch.said[place]
                    facts += execution.engine.report(execution.control, said, known, offset=len(facts))
            return facts

        await self._change(execution_id, decide, prepare=batch.prepare, fence=fence)
        return taken

    async def _check_current(self, execution: Execution) -> None:
        """Raise VersionConflict if the log has gone on: then somebody else may have reported what is to be replaced."""
        head = await self._ledger.head(execution.stream)
        actual = 0 if head is None else head.version
        if actual != execution.version:
            raise VersionConflict(execution.stream.stream_id, execution.version, actual)

    async def _check_replacing(self, execution: Execution, fence: Fence | None) -> None:
        """Raise if a result that somebody else has stored is not to be replaced by one that this decision has made."""
        if fence is not None:
            await fence.check()
        await self._check_current(execution)

    async def suspend(self, execution_id: int, wait: Suspension) -> int | None:
        """A command waits for a playbook from now on; the id its child shall have, or None if nobody waits for it."""
        child = self._new_id()
        async with self._line(execution_id):
            await self._change(
                execution_id, lambda found: found.engine.suspend(found.control, wait, child, self._known(found))
            )
            command = (await self._current(execution_id)).control.commands.get(wait.command_id)
        return command.child if command is not None and command.suspended else None

    async def wake(self, execution_id: int, command_id: int, child: int, outcome: Json) -> bool:
        """The child that a command waited for has ended; False if it waits for that no more."""
        async with self._line(execution_id):
            return await self._change(
                execution_id,
                lambda found: found.engine.resume(found.control, command_id, child, outcome, self._known(found)),
            )

    async def abandon(self, execution_id: int, command_id: int, worker_id: str) -> bool:
        """A worker has lost a command, which is to be delivered again; False if it is not in flight any more.

        One that has lost so many workers is taken for what ends them, and fails. A data stage goes on for as long as
        its frames do, which have attempts of their own.
        """
        command = (await self.latest(execution_id)).control.commands.get(command_id)
        if command is not None and not command.stage_id and command.abandons >= MOST_ABANDONS:
            return await self.report(execution_id, lost_report(command_id, command, worker_id))
        async with self._line(execution_id):
            return await self._change(
                execution_id,
                lambda found: found.engine.abandon(found.control, command_id, worker_id, self._known(found)),
            )

    async def cancel(
        self, execution_id: int, reason: str, *, principal: str | None = None, cascade: bool = False
    ) -> bool:
        """End an execution from outside; False if it has ended already. With `cascade` it calls nobody any more."""
        async with self._line(execution_id):
            return await self._change(
                execution_id,
                lambda found: found.engine.cancel(found.control, reason, self._known(found), cascade=cascade),
                principal,
            )

    async def finalize(self, execution_id: int, status: str, text: str, *, principal: str | None = None) -> bool:
        """End an execution from outside as COMPLETED or FAILED; False if it has ended already."""
        async with self._line(execution_id):
            return await self._change(
                execution_id,
                lambda found: found.engine.finalize(found.control, status, text, self._known(found)),
                principal,
            )

    async def patch(
        self, execution_id: int, values: Json, unset: Sequence[str] = (), *, principal: str | None = None
    ) -> bool:
        """Change `ctx` from outside, keys being `ctx.<path>`; False if the execution has ended."""
        async with self._line(execution_id):
            return await self._change(
                execution_id,
                lambda found: found.engine.patch(found.control, values, unset, self._known(found)),
                principal,
            )

    async def note(
        self, execution_id: int, fact: Fact, *, unless: Callable[[Execution], bool] = lambda _: False
    ) -> bool:
        """Write down something that decides nothing; False if the log, as it is by then, makes that superfluous."""
        async with self._line(execution_id):
            return await self._change(execution_id, lambda found: [] if unless(found) else [fact])

    async def tell(self, execution_id: int, stream: Stream, fact: Fact) -> None:
        """Write something into another stream of the execution."""
        execution = await self.execution(execution_id)
        draft = await self._draft(execution, fact, execution.principal, None)
        await self._ledger.append([Batch(stream=stream, drafts=[draft])])

    async def _change(
        self,
        execution_id: int,
        decide: Callable[[Execution], list[Fact]],
        principal: str | None = None,
        prepare: Callable[[Execution], Awaitable[None]] | None = None,
        fence: Fence | None = None,
    ) -> bool:
        """Commit what is decided; False if it is nothing. To be called by whoever holds the execution's line.

        Deciding changes the state in memory. Unless the decision is committed, that state is of no use any
        more: a conflict means that somebody else has moved the stream, and then the log is read again. The `fence`
        forbids the commit to who has lost what it was worked on under.
        """
        for _ in range(_TRIES):
            if execution_id in self._contested:  # to look costs less than to decide in vain
                await self._catch_up(execution_id)
            execution = await self._current(execution_id)
            committed = False
            try:
                if prepare is not None:
                    await prepare(execution)
                with within(place_of(execution.trace), "noetl.decide"):
                    facts = await self._route(execution, decide(execution))
                if facts:
                    events = await self._append(execution, facts, execution.version, fence, principal=principal)
                    self._settle(execution, facts, events)
                elif await self._has_moved(execution):
                    continue  # there may be something to decide for who knows all
                elif fence is not None:
                    await fence.check()
                committed = True
                return bool(facts)
            except VersionConflict:
                self._contested.note(execution_id)
                continue
            except BaseException as error:
                if not isinstance(error, LeasesLost):
                    self._unsure.add(execution_id)  # it may be in the log all the same, with nobody told
                raise
            finally:
                if not committed:
                    self._executions.pop(execution_id, None)
        raise Unavailable(f"execution {execution_id} is being changed by somebody else all the time")

    async def execution(self, execution_id: int) -> Execution:
        """An execution as the log has it. Raises NotFound."""
        if execution_id in self._executions:
            return await self._current(execution_id)
        async with self._line(execution_id):  # what is loaded beside a commit would be older than it
            return await self._current(execution_id)

    def in_memory(self, execution_id: int) -> Execution | None:
        """An execution if it is at hand, as this process knows it."""
        return self._executions.get(execution_id)

    async def latest(self, execution_id: int, version: int | None = None) -> Execution:
        """An execution as the log has it now, also when another process has written to it. Raises NotFound.

        Who knows that the log had come to a `version` gets it as it was then, or later.
        """
        async with self._line(execution_id):  # in the middle of a decision, commands have no ids yet
            await self._catch_up(execution_id, version)
            return await self._current(execution_id)

    async def _catch_up(self, execution_id: int, version: int | None = None) -> None:
        """Read what others have written since; nobody is given the execution before it is whole again."""
        known = self._executions.get(execution_id)
        if known is None or (version is not None and known.version >= version):
            return
        if version is not None or await self._has_moved(known):
            self._executions.pop(execution_id, None)
            await self._loader.advance(known)
            self._keep(execution_id, known)

    async def _has_moved(self, execution: Execution) -> bool:
        """Whether the log has gone on without this process."""
        head = await self._ledger.head(execution.stream)
        return head is None or head.version != execution.version

    async def _current(self, execution_id: int) -> Execution:
        if execution_id not in self._executions:
            self._keep(execution_id, await self._loader.load(execution_id))
            if execution_id in self._unsure:
                self._unsure.discard(execution_id)
                self._on_unsure(self._executions[execution_id])
        self._executions.move_to_end(execution_id)
        return self._executions[execution_id]

    async def pending(self, execution_id: int) -> list[Issued]:
        """The commands of an execution that somebody should be working on; after a crash, all of them again."""
        return pending_of(await self.latest(execution_id))

    async def suspended(self, execution_id: int) -> list[int]:
        """The commands of an execution that wait for a playbook they have called."""
        return suspended_of(await self.latest(execution_id))

    async def _append(
        self,
        execution: Execution,
        facts: Sequence[Fact],
        expected: int,
        fence: Fence | None = None,
        *,
        key: str | None = None,
        principal: str | None = None,
    ) -> Sequence[Envelope]:
        who = principal or execution.principal
        replacing = partial(self._check_replacing, execution, fence)
        drafts = [
            drafted(self._origin, execution, fact, who, None if place else key, fact.payload, fact.payload_ref)
            if self.keeper.fits(fact)
            else await self._draft(execution, fact, who, None if place else key, replacing)
            for place, fact in enumerate(facts)
        ]
        with within(place_of(execution.trace), "noetl.append", {"noetl.events": len(drafts)}):
            append = self._ledger.append if fence is None else fence.append
            return await append([Batch(stream=execution.stream, drafts=drafts, expected_version=expected)])

    async def _draft(
        self, execution: Execution, fact: Fact, principal: str, key: str | None, replacing: Replacing | None = None
    ) -> Draft:
        payload, ref = await self.keeper.fitting(execution, fact, replacing)
        state = execution.control.steps.get(fact.node_name or "")
        if payload is not fact.payload and state is not None and state.result_event == fact.event_id:
            state.result = payload["result"]  # control state keeps what the event keeps
        return drafted(self._origin, execution, fact, principal, key, payload, ref)

    def _settle(self, execution: Execution, facts: Sequence[Fact], events: Sequence[Envelope]) -> None:
        execution.control.settle({-place - 1: event.event_id for place, event in enumerate(events)})
        execution.version = events[-1].stream_version
        execution.ended = execution.control.ended
        if execution.trace is not None:
            execution.trace = execution.trace.followed(events, execution.playbook.path)
        self._on_events(events)
        for fact, event in zip(facts, events, strict=True):
            execution.remember(event, fact.payload)
            if event.event_type not in _DELIVERED:
                continue
            command = execution.control.commands.get(event.command_id or 0)
            if command is not None:
                self._on_issued(
                    Issued(
                        execution_id=execution.control.execution_id,
                        command_id=event.command_id or 0,
                        step=command.step,
                        kind=command.kind,
                    )
                )
        if execution.results:
            execution.drop_unwanted_results()

    def _known(self, execution: Execution, report: Report | None = None) -> Known:
        loop_results = None
        if report is not None and (loop_results := execution.loop_results(report)) is not None:
            step = execution.control.commands[report.command_id].step
            loop_results.reference = self.keeper.promised(execution, step, loop_results)
        return Known(
            now=format_time(self._clock.now()),
            results=execution.results,
            items=execution.items,
            env=self._env,
            server_url=self._origin.server_url,
            loop_results=loop_results,
        )

    def _keep(self, execution_id: int, execution: Execution) -> None:
        self._executions[execution_id] = execution
        while len(self._executions) > _KEPT:
            self._executions.popitem(last=False)


async def _unrouted(_: Execution, facts: list[Fact]) -> list[Fact]:
    return facts
