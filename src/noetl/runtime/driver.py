"""The driver: it loads what an execution has become, lets the engine decide, and commits the decision.

A report and everything that follows from it are one append: either the step has ended and the next one
is issued, or nothing has happened. Any process may drive any execution; the stream's version sees to it
that one of two wins, and the other reloads and decides again.
"""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from noetl.engine.control import Control, LoopState
from noetl.engine.decide import Engine, Report
from noetl.engine.fact import Fact
from noetl.engine.folding import apply
from noetl.engine.scope import Known
from noetl.engine.workload import workload_of
from noetl.errors import IdempotencyMismatch, InvalidInput, NotFound, Unavailable, VersionConflict
from noetl.kernel import canonical
from noetl.kernel.event import Draft, Envelope, Json, PayloadRef, Ref
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream
from noetl.kernel.time import format_time
from noetl.payloads.store import PayloadStore
from noetl.playbook.document import Playbook
from noetl.playbook.parse import load
from noetl.playbook.templates import Host
from noetl.ports.clock import Clock
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.externalize import VALUES, externalize, externalize_values, resolve_values

__all__ = ["Driver", "Execution", "Issued", "Origin", "Request"]

_KEPT = 256
_PAGE = 1000
_TRIES = 10


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf events are written."""

    tenant_id: str = "default"
    organization_id: str = "default"
    project_id: str = "default"
    principal: str = "local"
    producer: str = "noetl://tenant/default"
    home: Json = {}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An execution to be started."""

    document: str
    file: str = "<text>"
    origin: str = "file"
    workload: Json = {}
    key: str | None = None
    parent_execution_id: int | None = None
    root_execution_id: int | None = None
    entry: str | None = None


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A command that waits for a worker."""

    execution_id: int
    command_id: int
    step: str
    kind: str


class Execution:
    """One execution in memory: its document, its control state, and what iterations have left."""

    def __init__(self, stream: Stream, playbook: Playbook, control: Control, document: str, file: str) -> None:
        self.stream = stream
        self.document = document
        self.digest = hashlib.sha256(document.encode()).hexdigest()
        self.file = file
        self.playbook = playbook
        self.control = control
        self.engine = Engine(playbook)
        self.version = 0
        self.commands: dict[int, Json] = {}
        self.items: dict[str, Sequence[Any]] = {}
        self.iterations: dict[str, dict[int, Any]] = {}
        self.results: dict[str, Any] = {}


class _Line:
    """Where those stand who want to change an execution. It outlives what is kept of the execution in memory."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.inbox: list[tuple[Report, asyncio.Future[bool]]] = []


class Driver:
    """Drives executions of one ledger. Commands to be run are handed to `on_issued`."""

    def __init__(
        self,
        ledger: Ledger,
        payloads: PayloadStore,
        clock: Clock,
        origin: Origin,
        new_id: Callable[[], int],
        on_issued: Callable[[Issued], None],
        kinds: Collection[str] = (),
        on_events: Callable[[Sequence[Envelope]], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._payloads = payloads
        self._clock = clock
        self._origin = origin
        self._new_id = new_id
        self._on_issued = on_issued
        self._kinds = kinds
        self._on_events = on_events
        self._executions: OrderedDict[int, Execution] = OrderedDict()
        self._lines: weakref.WeakValueDictionary[int, _Line] = weakref.WeakValueDictionary()
        self._documents: OrderedDict[str, Playbook] = OrderedDict()

    async def start(self, request: Request) -> int:
        """Begin an execution and return its id. The same key gives the same execution again."""
        known = await self._started(request)
        if known is not None:
            return known
        playbook = self._parsed(request.document, request.file, request.entry)
        ref = await self._payloads.store(request.document.encode(), media_type="application/yaml")
        execution_id = self._new_id()
        stream = Stream(self._origin.tenant_id, execution_stream(execution_id))
        control = Control(execution_id=execution_id)
        opening = self._opening(request, playbook, ref, execution_id)
        execution = Execution(stream, playbook, control, request.document, request.file)
        facts = execution.engine.start(control, opening, self._known(execution))
        try:
            events = await self._append(execution, facts, expected=0, key=request.key)
        except IdempotencyMismatch:
            known = await self._started(request)
            if known is None:
                raise
            return known  # somebody started it with this key a moment ago
        self._settle(execution, facts, events)
        self._keep(execution_id, execution)
        return execution_id

    async def _started(self, request: Request) -> int | None:
        """The execution that this request has started before, if it has a key and did."""
        if request.key is None:
            return None
        found = await self._ledger.by_key(self._origin.tenant_id, request.key)
        return None if found is None else found.event.execution_id

    async def report(self, execution_id: int, report: Report) -> bool:
        """A worker has finished a command; False if it was not in flight any more.

        Reports that arrive while a commit is under way are decided together and committed as one: many
        iterations of a loop then share the cost of one write to disk.
        """
        line = self._line(execution_id)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line.inbox.append((report, answer))
        async with line.lock:
            if not answer.done():
                await self._drain(execution_id, line)
        return await answer

    async def _drain(self, execution_id: int, line: _Line) -> None:
        """Decide everything that waits, and tell each who waits what came of it."""
        waiting, line.inbox = line.inbox, []
        try:
            taken = await self._decide(execution_id, [report for report, _ in waiting])
        except asyncio.CancelledError:
            line.inbox = [(report, answer) for report, answer in waiting if not answer.done()] + line.inbox
            raise
        except Exception as error:  # nobody may be left waiting, whatever it was
            for _, answer in waiting:
                answer.set_exception(error)
            return
        for (_, answer), was_taken in zip(waiting, taken, strict=True):
            answer.set_result(was_taken)

    async def _decide(self, execution_id: int, reports: Sequence[Report]) -> list[bool]:
        """Decide reports together and commit them as one; says of each whether it was still wanted."""
        taken: list[bool] = []

        def decide(execution: Execution) -> list[Fact]:
            facts: list[Fact] = []
            taken.clear()
            for report in reports:
                taken.append(report.command_id in execution.control.commands)
                if taken[-1]:
                    self._note_iteration(execution, report)
                    known = self._known(execution, report)
                    facts += execution.engine.report(execution.control, report, known, offset=len(facts))
            return facts

        await self._change(execution_id, decide)
        return taken

    async def cancel(self, execution_id: int, reason: str) -> bool:
        """End an execution from outside; False if it has ended already."""
        async with self._line(execution_id).lock:
            return await self._change(
                execution_id, lambda found: found.engine.cancel(found.control, reason, self._known(found))
            )

    async def _change(self, execution_id: int, decide: Callable[[Execution], list[Fact]]) -> bool:
        """Commit what is decided; False if it is nothing. To be called by whoever holds the execution's line.

        Deciding changes the state in memory. Unless the decision is committed, that state is of no use any
        more: a conflict means that somebody else has moved the stream, and then the log is read again.
        """
        for _ in range(_TRIES):
            execution = await self._current(execution_id)
            committed = False
            try:
                facts = decide(execution)
                if facts:
                    events = await self._append(execution, facts, expected=execution.version)
                    self._settle(execution, facts, events)
                committed = True
                return bool(facts)
            except VersionConflict:
                continue
            finally:
                if not committed:
                    self._executions.pop(execution_id, None)
        raise Unavailable(f"execution {execution_id} is being changed by somebody else all the time")

    async def execution(self, execution_id: int) -> Execution:
        """An execution as the log has it. Raises NotFound."""
        if execution_id in self._executions:
            return await self._current(execution_id)
        async with self._line(execution_id).lock:  # what is loaded beside a commit would be older than it
            return await self._current(execution_id)

    async def _current(self, execution_id: int) -> Execution:
        if execution_id not in self._executions:
            self._keep(execution_id, await self._load(execution_id))
        self._executions.move_to_end(execution_id)
        return self._executions[execution_id]

    def _line(self, execution_id: int) -> _Line:
        return self._lines.setdefault(execution_id, _Line())

    async def pending(self, execution_id: int) -> list[Issued]:
        """The commands of an execution that somebody should be working on; after a crash, all of them again."""
        async with self._line(execution_id).lock:  # in the middle of a decision, commands have no ids yet
            execution = await self._current(execution_id)
        return [
            Issued(execution_id=execution_id, command_id=command_id, step=command.step, kind=command.kind)
            for command_id, command in sorted(execution.control.commands.items())
            if not command.suspended
        ]

    async def _append(
        self, execution: Execution, facts: Sequence[Fact], *, expected: int, key: str | None = None
    ) -> Sequence[Envelope]:
        drafts = [await self._draft(execution, fact, key if place == 0 else None) for place, fact in enumerate(facts)]
        return await self._ledger.append([Batch(stream=execution.stream, drafts=drafts, expected_version=expected)])

    async def _draft(self, execution: Execution, fact: Fact, key: str | None) -> Draft:
        large = fact.large or ("result",)
        payload, ref = await externalize(await externalize_values(fact.payload, self._payloads), large, self._payloads)
        state = execution.control.steps.get(fact.node_name or "")
        if ref is not None and state is not None and state.result_event == fact.event_id:
            state.result = payload["result"]  # control state keeps what the event keeps
        command = fact.command_id
        return Draft(
            event_type=fact.event_type,
            tenant_id=self._origin.tenant_id,
            organization_id=self._origin.organization_id,
            project_id=self._origin.project_id,
            principal=self._origin.principal,
            producer=self._origin.producer,
            execution_id=execution.control.execution_id,
            parent_execution_id=execution.control.parent_execution_id,
            aggregate_type=fact.aggregate_type,
            aggregate_id=fact.aggregate_id,
            command_id=Ref(-command - 1) if command is not None and command < 0 else command,
            node_name=fact.node_name,
            status=fact.status,
            attempt=fact.attempt,
            payload=payload,
            payload_ref=ref,
            meta=fact.meta,
            idempotency_key=key,
        )

    def _settle(self, execution: Execution, facts: Sequence[Fact], events: Sequence[Envelope]) -> None:
        execution.control.settle({-place - 1: event.event_id for place, event in enumerate(events)})
        execution.version = events[-1].stream_version
        self._on_events(events)
        for fact, event in zip(facts, events, strict=True):
            self._remember(execution, event, fact.payload)
            if event.event_type == "command.issued" and event.event_id in execution.control.commands:
                command = execution.control.commands[event.event_id]
                self._on_issued(
                    Issued(
                        execution_id=execution.control.execution_id,
                        command_id=event.event_id,
                        step=command.step,
                        kind=command.kind,
                    )
                )

    def _remember(self, execution: Execution, event: Envelope, payload: Json) -> None:
        """Keep at hand what decisions and workers will ask for next."""
        step = event.node_name or ""
        if event.event_type == "command.issued":
            execution.commands[event.event_id] = payload
        elif event.event_type == "loop.opened":
            execution.items[step] = payload.get("items", [])
            execution.iterations[step] = {}
        elif event.event_type == "loop.done":
            execution.items.pop(step, None)
            execution.iterations.pop(step, None)
        elif event.event_type in ("command.completed", "command.failed", "command.cancelled"):
            execution.commands.pop(event.command_id or 0, None)
        if event.event_type in ("call.done", "call.error", "loop.done") and event.payload_ref is not None:
            execution.results[step] = payload["result"].get("context")

    def _note_iteration(self, execution: Execution, report: Report) -> None:
        command = execution.control.commands[report.command_id]
        if command.index is not None:
            kept = execution.iterations.setdefault(command.step, {})
            kept[command.index] = (
                {"status": "error", "error": report.error} if report.error is not None else report.result
            )

    def _known(self, execution: Execution, report: Report | None = None) -> Known:
        results = None
        if report is not None:
            command = execution.control.commands.get(report.command_id)
            loop = execution.control.loops.get(command.step) if command and command.index is not None else None
            if command is not None and loop is not None and _may_be_last(execution.control, loop, report):
                kept = execution.iterations[command.step]
                results = [kept[index] for index in sorted(kept)]
        return Known(
            now=format_time(self._clock.now()), results=execution.results, items=execution.items, loop_results=results
        )

    def _opening(self, request: Request, playbook: Playbook, ref: PayloadRef, execution_id: int) -> Json:
        own = str(execution_id)
        identity: Json = {"execution_id": own, "job": {"uuid": own, "execution_id": own, "id": own}}
        host = Host(now=format_time(self._clock.now()))
        workload, seeds = workload_of(playbook, request.workload, identity, host, {})
        return {
            "ctx": seeds,
            "path": playbook.path,
            "document": {
                "sha256": ref.sha256,
                "bytes": ref.bytes,
                "path": playbook.path,
                "origin": request.origin,
                "file": request.file,
                "entry": playbook.entry,
            },
            "workload": workload,
            "root_execution_id": request.root_execution_id or execution_id,
            "parent_execution_id": request.parent_execution_id,
            "home": self._origin.home,
        }

    async def _load(self, execution_id: int) -> Execution:
        stream = Stream(self._origin.tenant_id, execution_stream(execution_id))
        control = Control(execution_id=execution_id)
        execution: Execution | None = None
        version = 0
        while page := await self._ledger.read(stream, after_version=version, limit=_PAGE):
            for item in page:
                event = await self._resolved(item.event)
                apply(control, event)
                if execution is None:
                    playbook, text = await self._document(event)
                    file = event.payload.get("document", {}).get("file", playbook.path)
                    execution = Execution(stream, playbook, control, text, file)
                self._remember(execution, event, await self._whole(event))
                if event.event_type in ("call.done", "call.error"):
                    await self._recall_iteration(execution, event)
            version = page[-1].event.stream_version
        if execution is None:
            raise NotFound(f"there is no execution {execution_id}", hint="noetl list shows the ones there are")
        execution.version = version
        return execution

    async def _resolved(self, event: Envelope) -> Envelope:
        """The event with its assignments and its workload as they were before large values were stored outside."""
        found = {name: event.payload[name] for name in VALUES if event.payload.get(name)}
        values = {name: await resolve_values(said, self._payloads) for name, said in found.items()}
        if values == found:
            return event
        return msgspec.structs.replace(event, payload={**event.payload, **values})

    async def _recall_iteration(self, execution: Execution, event: Envelope) -> None:
        issued = execution.commands.get(event.command_id or 0, {})
        if "loop_index" in issued:
            payload = await self._whole(event)
            failed = event.event_type == "call.error"
            value = {"status": "error", "error": payload.get("error")} if failed else payload["result"].get("context")
            execution.iterations.setdefault(event.node_name or "", {})[issued["loop_index"]] = value

    async def _document(self, event: Envelope) -> tuple[Playbook, str]:
        said = event.payload.get("document", {})
        digest = said.get("sha256", "")
        uri = f"noetl://{event.tenant_id}/{event.project_id}/payloads/sha256/{digest}"
        ref = PayloadRef(uri=uri, sha256=digest, media_type="application/yaml", bytes=said.get("bytes", 0))
        text = (await self._payloads.fetch(ref)).decode()
        return self._parsed(text, said.get("file", "<document>"), said.get("entry")), text

    def _parsed(self, text: str, file: str, entry: str | None) -> Playbook:
        """A document, read once however often it is started."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in self._documents:
            self._documents[digest] = load(text, file, kinds=self._kinds)
            if len(self._documents) > _KEPT:
                self._documents.popitem(last=False)
        playbook = self._documents[digest]
        return playbook if entry is None else _entering(playbook, entry)

    async def _whole(self, event: Envelope) -> Json:
        """The payload with what was stored outside of the event."""
        if event.payload_ref is None or event.payload_ref.media_type != "application/json":
            return event.payload
        stored = canonical.decode(await self._payloads.fetch(event.payload_ref))
        return {**event.payload, **stored}

    def _keep(self, execution_id: int, execution: Execution) -> None:
        self._executions[execution_id] = execution
        while len(self._executions) > _KEPT:
            self._executions.popitem(last=False)


def _may_be_last(control: Control, loop: LoopState, report: Report) -> bool:
    """Whether a loop may end with this report, so that its results will be asked for."""
    if loop.in_flight != 1:
        return False
    cut_short = control.failure is not None or loop.failed > 0 or report.error is not None
    return cut_short or loop.next_index >= loop.total


def _entering(playbook: Playbook, entry: str) -> Playbook:
    if entry not in playbook.steps:
        raise InvalidInput(f"there is no step '{entry}' in {playbook.path}", hint=f"steps: {', '.join(playbook.steps)}")
    return playbook if entry == playbook.entry else msgspec.structs.replace(playbook, entry=entry)
