"""The keeper: what is too large for an event is put where it belongs, and brought back when somebody asks for it.

A result has an object of its own, whose key follows from where in the run it was made (`payloads.results`). Everything
else that is large, such as documents, contexts of commands and values of `ctx`, is a payload by its digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from noetl.engine.control import StepState
from noetl.engine.decide import Report, awaited, recorded_value
from noetl.engine.fact import Fact
from noetl.engine.scope import whole_result
from noetl.kernel import canonical
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.lazy import LazyMapping
from noetl.kernel.names import ResultCoordinates
from noetl.kernel.time import format_time
from noetl.kernel.vocabulary import TERMINAL_TYPES
from noetl.payloads.results import Replacing, ResultStore
from noetl.payloads.store import PayloadStore
from noetl.ports.clock import Clock
from noetl.runtime.execution import Execution
from noetl.runtime.externalize import VALUES, VALUES_BYTES, externalize, externalize_values
from noetl.runtime.iterations import Iterations
from noetl.runtime.storage import INLINE_BYTES, About, Storage, payload_ref_of, store_of

__all__ = ["Keeper", "Large", "ReportBatch"]

_SECOND = 1_000_000
_DAY_SECONDS = 24 * 3600.0
_RESULT = ("result",)
_SMALL = frozenset({"kind", "run", "final", "loop_index", "loop_id", "warnings", "pool", "placement"})
"""What a command says of itself that refers to no result and is never large."""


class Large(NamedTuple):
    """A result that is not to stand in its event."""

    value: Any
    encoded: bytes | None
    """Its canonical JSON; None for a table, which is not to become JSON."""


class Keeper:
    """Keeps and fetches for the executions of one tenant and project."""

    def __init__(
        self,
        payloads: PayloadStore,
        results: ResultStore,
        clock: Clock,
        project: str,
        *,
        step_scope: float = _DAY_SECONDS,
        routes: Collection[str] = (),
    ) -> None:
        """`step_scope` is how many seconds a result of `scope: step` is kept; `routes` are the store kinds that lead
        elsewhere than to the installation's own store.
        """
        self.payloads = payloads
        self.results = results
        self._clock = clock
        self._project = project
        self._step_scope = step_scope
        self._routes = frozenset(routes)

    # --- Results of commands, before anything is decided about them ---

    def large_part(self, execution: Execution, report: Report) -> Large | None:
        """The result of a report that has to be stored; None for most, which are measured and no more."""
        value = recorded_value(report)
        if isinstance(value, LazyMapping):
            return Large(value, None)
        limit = execution.storage_of(execution.control.commands[report.command_id].step).limit
        size = len(canonical.encode([value, report.set, report.detail, report.error]))
        if value is None or (size <= INLINE_BYTES and limit >= INLINE_BYTES):
            return None
        encoded = canonical.encode(value)
        assigned = len(canonical.encode(report.set))
        around = size - len(encoded) - max(0, assigned - VALUES_BYTES)  # the largest of these are stored by themselves
        fits = limit > 0 and len(encoded) <= limit and len(encoded) + around <= INLINE_BYTES
        return None if fits else Large(value, encoded)

    async def keep(self, execution: Execution, report: Report, large: Large, replacing: Replacing) -> Report:
        """Store the result of a report whose command is in flight; the report that refers to it."""
        command = execution.control.commands[report.command_id]
        storage = execution.storage_of(command.step)
        place = self._place(execution, command.step, command.run, row=command.index, attempt=_attempt_of(report))
        ref = await self.results.put(
            place,
            large.value,
            execution.home,
            route=self._route(storage),
            encoded=large.encoded,
            replacing=replacing,
        )
        status = "ok" if report.error is None else "error"
        left = storage.left(status, large.value, ref, About.of(large.value, large.encoded, self._expiry(storage)))
        return msgspec.structs.replace(report, result=left["context"], reference=left["reference"], stored=ref)

    # --- Facts, once they are decided ---

    def fits(self, fact: Fact) -> bool:
        """Whether the payload of a fact stands in its event as it is: nothing in it could be stored elsewhere."""
        payload = fact.payload
        if not payload:
            return True
        if fact.large:
            return fact.event_type == "command.issued" and payload.keys() <= _SMALL
        return payload.keys().isdisjoint(VALUES) and fact.event_type not in TERMINAL_TYPES

    async def fitting(
        self, execution: Execution, fact: Fact, replacing: Replacing | None = None
    ) -> tuple[Json, PayloadRef | None]:
        """The payload as it fits an event, and where the rest of it is. `replacing` may forbid to replace a result."""
        payload, ref = fact.payload, fact.payload_ref
        if not payload:
            return payload, ref
        if fact.event_type == "command.issued":
            execution.refer_to_results(payload)
        elif fact.event_type == "stage.opened":
            execution.refer_to_input(payload)
        elif fact.event_type in TERMINAL_TYPES:
            payload = execution.with_stored_result(payload)
        elif fact.large == _RESULT:
            payload, ref = await self._engine_made(execution, fact, replacing)
        if any(name in payload for name in VALUES):
            payload = await externalize_values(payload, self.payloads)
        if ref is not None or not fact.large or fact.large == _RESULT:
            return payload, ref
        return await externalize(payload, fact.large, self.payloads)

    async def _engine_made(
        self, execution: Execution, fact: Fact, replacing: Replacing | None
    ) -> tuple[Json, PayloadRef | None]:
        """The result of a noop or of a loop. No worker has made it, so nobody could store it before."""
        result, step = fact.payload["result"], fact.node_name or ""
        context, storage = result.get("context"), execution.storage_of(step)
        place = self._place(execution, step, execution.control.steps[step].run)
        if isinstance(context, dict) and isinstance(context.get("results"), Iterations):
            left, ref = await self._keep_loop(execution, place, result, storage, replacing)
        else:
            left, ref = await self._keep_noop(execution, place, result, storage, replacing)
        return {**fact.payload, "result": left}, ref

    async def _keep_loop(
        self,
        execution: Execution,
        place: ResultCoordinates,
        result: Json,
        storage: Storage,
        replacing: Replacing | None,
    ) -> tuple[Json, PayloadRef | None]:
        """The results of iterations are copied from where they wait, not through memory."""
        context, results = result["context"], result["context"]["results"]
        if results.bytes <= loop_limit(storage):
            return {**result, "context": {**context, "results": list(results)}}, None
        if results.stored is None:
            text, route = (lambda: _text_of_loop(context, results)), self._route(storage)
            results.stored = await self.results.put_json(place, text, execution.home, route=route, replacing=replacing)
        expiry = self._expiry(storage)
        counts = {name: value for name, value in context.items() if name != "results"}
        left = storage.left(result["status"], counts, results.stored, about_loop(context, results, expiry))
        return {**left, "context": {**left["context"], **counts}}, results.stored

    async def _keep_noop(
        self,
        execution: Execution,
        place: ResultCoordinates,
        result: Json,
        storage: Storage,
        replacing: Replacing | None,
    ) -> tuple[Json, PayloadRef | None]:
        value = result.get("context")
        encoded = None if isinstance(value, LazyMapping) else canonical.encode(value)
        if value is None or (encoded is not None and storage.limit > 0 and len(encoded) <= storage.limit):
            return result, None
        route = self._route(storage)
        ref = await self.results.put(place, value, execution.home, route=route, encoded=encoded, replacing=replacing)
        return storage.left(result["status"], value, ref, About.of(value, encoded, self._expiry(storage))), ref

    def promised(self, execution: Execution, step: str, results: Iterations) -> Json | None:
        """What the event of a loop that may end now will say about where its results are; None if they fit."""
        storage = execution.storage_of(step)
        if results.bytes <= loop_limit(storage):
            return None
        about = about_loop({"count": len(results)}, results)
        uri = self._place(execution, step, execution.control.steps[step].run).logical_uri()
        return {"ref": uri, "store": storage.store or store_of(about.size), "preview": about.preview}

    def _place(
        self, execution: Execution, step: str, run: int, *, row: int | None = None, attempt: int = 1
    ) -> ResultCoordinates:
        return ResultCoordinates(
            tenant=execution.stream.tenant_id,
            project=self._project,
            execution_id=execution.control.execution_id,
            step=step,
            run=run,
            row=row,
            attempt=attempt,
        )

    def _route(self, storage: Storage) -> str | None:
        return storage.store if storage.store in self._routes else None

    def _expiry(self, storage: Storage) -> str | None:
        if storage.scope != "step":
            return None
        return format_time(self._clock.now() + round(self._step_scope * _SECOND))

    # --- Reading ---

    async def whole(self, reference: Json) -> Any:
        """The result that an event's reference stands for. Raises NotFound, IntegrityMismatch.

        A log of an earlier release refers to a payload by its digest, with the result inside of a part of the event.
        """
        ref = payload_ref_of(reference)
        if ref.key is not None:
            return await self.results.value(ref)
        return canonical.decode(await self.payloads.fetch(ref))["result"].get("context")

    async def result_of(self, execution: Execution, step: str) -> Any:
        """The whole result of a step that has ended. Raises NotFound, IntegrityMismatch."""
        state = execution.control.steps[step]
        if "reference" not in state.result:
            return whole_result(state, state.result.get("context"))
        found = execution.results[step] if step in execution.results else await self.whole(state.result["reference"])
        return whole_result(state, found)

    async def bring(self, execution: Execution, steps: Mapping[str, StepState] | None = None) -> None:
        """Have those results at hand that the engine's own templates will read more of than their events have kept.

        `steps` are those of another execution that this one is about to adopt.
        """
        states = execution.control.steps if steps is None else steps
        for step in execution.wanted_results(states):
            execution.results[step] = await self.whole(states[step].result["reference"])


class ReportBatch:
    """Reports that are decided together. Large results of theirs are stored before, and once, however often that is."""

    def __init__(
        self,
        reports: Sequence[Report],
        keeper: Keeper,
        check_current: Callable[[Execution], Awaitable[None]],
        check_held: Callable[[], Awaitable[None]],
    ) -> None:
        """`check_current` raises if the log has gone on without what is in memory, `check_held` if a report is void."""
        self.said = list(reports)
        """The reports as they are to be decided, by their place."""
        self.large: dict[int, Large] = {}
        """The whole results of those that were stored, by their place."""
        self._reports = reports
        self._keeper = keeper
        self._check_current = check_current
        self._check_held = check_held

    async def prepare(self, execution: Execution) -> None:
        """Store what has to be stored of reports whose commands are in flight; several at once, as they came."""
        waiting: dict[int, Large] = {}
        for place, report in enumerate(self._reports):
            if place not in self.large and awaited(execution.control, report) is not None:
                large = self._keeper.large_part(execution, report)
                if large is not None:
                    waiting[place] = large
        if not waiting:
            return
        await self._check_held()
        replacing = partial(self._check_current, execution)
        stored = await asyncio.gather(
            *(self._keeper.keep(execution, self._reports[place], large, replacing) for place, large in waiting.items()),
            return_exceptions=True,
        )
        for place, outcome in zip(waiting, stored, strict=True):
            if isinstance(outcome, Report):
                self.said[place], self.large[place] = outcome, waiting[place]
        for outcome in stored:
            if isinstance(outcome, BaseException):
                raise outcome  # the others are stored, and will be found so


def loop_limit(storage: Storage) -> int:
    """How much the results of a loop may come to in its event."""
    return min(VALUES_BYTES, storage.limit)


def about_loop(context: Json, results: Iterations, expires_at: str | None = None) -> About:
    """What is known of the result of a loop before it is stored."""
    before, after = _around_results(context)
    data = before + results.beginning(1024) + after
    size = results.bytes + len(results) + len(before) + len(after)
    return About(size=size, preview=data[:1024].decode(errors="ignore"), expires_at=expires_at)


async def _text_of_loop(context: Json, results: Iterations) -> AsyncIterator[bytes]:
    """The canonical JSON of the whole result, put together around its list."""
    before, after = _around_results(context)
    yield before
    async for chunk in results.encoded():
        yield chunk
    yield after


def _around_results(context: Json) -> tuple[bytes, bytes]:
    before, empty, after = canonical.encode({**context, "results": []}).partition(b'"results":[]')
    return before + empty[:-1], empty[-1:] + after


def _attempt_of(report: Report) -> int:
    """The attempt that the result came from, counted within the last task."""
    attempt = report.detail.get("output", {}).get("meta", {}).get("attempt")
    return attempt if isinstance(attempt, int) and attempt > 0 else 1
