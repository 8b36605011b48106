"""From the log back to executions in memory."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Sequence

import msgspec

from noetl.engine.control import Control
from noetl.engine.folding import apply
from noetl.errors import InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.event import Envelope, Json, PayloadRef, Recorded
from noetl.kernel.streams import execution_stream
from noetl.payloads.store import PayloadStore
from noetl.playbook.document import Playbook
from noetl.playbook.parse import load
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.execution import Execution
from noetl.runtime.externalize import VALUES, resolve_values
from noetl.runtime.keeping import Keeper
from noetl.runtime.tracing import trace_of

__all__ = ["Documents", "Loader", "with_values"]

_KEPT = 256
_PAGE = 1000
_TRUSTED = 60_000_000
"""Microseconds for which a document that was stored is not looked for again."""
_RESULTS = frozenset({"call.done", "call.error", "loop.done"})


class Documents:
    """Documents by their digest, read once however often they are started."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._kept: OrderedDict[str, Playbook] = OrderedDict()
        self._stored_at: OrderedDict[str, tuple[PayloadRef, int]] = OrderedDict()

    def playbook(self, text: str, file: str, entry: str | None) -> Playbook:
        """The document, entered at a step other than its own if one is named. Raises what `load` raises."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in self._kept:
            self._kept[digest] = load(text, file, kinds=self._kinds)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        playbook = self._kept[digest]
        return playbook if entry is None else _entering(playbook, entry)

    async def stored(self, text: str, payloads: PayloadStore, now: int) -> PayloadRef:
        """The document as a payload. One that was stored a moment ago is there; after a while it may be collected."""
        known = self._stored_at.get(text)
        if known is not None and 0 <= now - known[1] < _TRUSTED:
            return known[0]
        ref = await payloads.store(text.encode(), media_type="application/yaml")
        self._stored_at[text] = (ref, now)
        while len(self._stored_at) > _KEPT:
            self._stored_at.popitem(last=False)
        return ref


class Loader:
    """Reads executions from their own streams."""

    def __init__(self, ledger: Ledger, keeper: Keeper, documents: Documents, tenant_id: str) -> None:
        self._ledger = ledger
        self._keeper = keeper
        self._documents = documents
        self._tenant_id = tenant_id

    async def load(self, execution_id: int) -> Execution:
        """The execution as the log has it now. Raises NotFound.

        Of what is kept outside of the log only that is read which is going to be asked for.
        """
        stream = Stream(self._tenant_id, execution_stream(execution_id))
        control = Control(execution_id=execution_id)
        page = await self._read(stream, 0)
        if not page:
            raise NotFound(f"there is no execution {execution_id}", hint="noetl list shows the ones there are")
        execution = await self._opened(stream, control, page[0].event)
        await self._fold(execution, page)
        return execution

    async def advance(self, execution: Execution) -> None:
        """Bring an execution up to where the log is now. If that fails, the execution is of no use any more."""
        await self._fold(execution, await self._read(execution.stream, execution.version))

    async def _fold(self, execution: Execution, page: Sequence[Recorded]) -> None:
        rest = _Rest()
        while page:
            for item in page:
                event = await with_values(item.event, self._keeper.payloads)
                apply(execution.control, event)
                rest.note(event, execution)
                if event.event_type in _RESULTS:
                    execution.results.pop(event.node_name or "", None)  # that of the run before
                execution.remember(event, event.payload)
            execution.version = page[-1].event.stream_version
            page = await self._read(execution.stream, execution.version)
        execution.ended = execution.control.ended
        execution.drop_unwanted_results()
        await self._complete(execution, rest)

    async def _read(self, stream: Stream, after: int) -> Sequence[Recorded]:
        return await self._ledger.read(stream, after_version=after, limit=_PAGE)

    async def stored_at(self, execution_id: int, uri: str) -> PayloadRef | None:
        """The object that an event of the execution refers to under this name; None if none does."""
        stream = Stream(self._tenant_id, execution_stream(execution_id))
        version = 0
        while page := await self._ledger.read(stream, after_version=version, limit=_PAGE):
            for item in page:
                ref = item.event.payload_ref
                if ref is not None and ref.uri == uri:
                    return ref
            version = page[-1].event.stream_version
        return None

    async def _opened(self, stream: Stream, control: Control, event: Envelope) -> Execution:
        said = event.payload.get("document", {})
        digest = said.get("sha256", "")
        uri = f"noetl://{event.tenant_id}/{event.project_id}/payloads/sha256/{digest}"
        ref = PayloadRef(uri=uri, sha256=digest, media_type="application/yaml", bytes=said.get("bytes", 0))
        text = (await self._keeper.payloads.fetch(ref)).decode()
        playbook = self._documents.playbook(text, said.get("file", "<document>"), said.get("entry"))
        execution = Execution(stream, playbook, control, text, said.get("file", playbook.path))
        execution.principal = event.principal
        execution.trace = trace_of(event)
        return execution

    async def _complete(self, execution: Execution, rest: _Rest) -> None:
        """Bring what is in flight: commands, pauses, collections of loops and the results they have so far."""
        for command, refs in rest.commands.items():
            if command in execution.commands:
                execution.commands[command] = await self._with(execution.commands[command], refs)
        for command, refs in rest.stages.items():
            if command in execution.stages:
                execution.stages[command] = await self._with(execution.stages[command], refs)
        for command, refs in rest.pauses.items():
            if command in execution.pauses:
                execution.pauses[command] = await self._with(execution.pauses[command], refs)
        for step, refs in rest.items.items():
            execution.items[step] = (await self._with({}, refs))["items"]
        for step, references in rest.iterations.items():
            for index, reference in references.items():
                execution.note_iteration(step, index, await self._keeper.whole(reference), None)
        if execution.ended is None:
            await self._keeper.bring(execution)

    async def _with(self, payload: Json, refs: Sequence[PayloadRef]) -> Json:
        for ref in refs:
            payload = {**payload, **canonical.decode(await self._keeper.payloads.fetch(ref))}
        return payload


class _Rest:
    """Where the rest of those events is that may be needed whole when the last of them has been seen."""

    def __init__(self) -> None:
        self.commands: dict[int, list[PayloadRef]] = {}
        self.stages: dict[int, list[PayloadRef]] = {}
        self.pauses: dict[int, list[PayloadRef]] = {}
        self.items: dict[str, list[PayloadRef]] = {}
        self.iterations: dict[str, dict[int, Json]] = {}

    def note(self, event: Envelope, execution: Execution) -> None:
        """Take an event into account, before the execution remembers it."""
        step, command = event.node_name or "", event.command_id or 0
        refs = [] if event.payload_ref is None else [event.payload_ref]
        match event.event_type:
            case "command.issued" if refs:
                self.commands[event.event_id] = refs
            case "stage.opened" if refs:
                self.stages[command] = refs
            case "command.suspended":
                self.pauses[command] = refs
            case "command.resumed":
                self.pauses.setdefault(command, []).extend(refs)
            case "command.completed" | "command.failed" | "command.cancelled":
                self.commands.pop(command, None)
                self.pauses.pop(command, None)
            case "loop.opened":
                self.iterations[step] = {}
                if refs:
                    self.items[step] = refs
            case "loop.done":
                self.items.pop(step, None)
                self.iterations.pop(step, None)
            case "call.done" | "call.error":
                self._note_iteration(event, step, execution)

    def _note_iteration(self, event: Envelope, step: str, execution: Execution) -> None:
        index = execution.commands.get(event.command_id or 0, {}).get("loop_index")
        if index is None:
            return
        result = event.payload["result"]
        if event.event_type == "call.error":
            execution.note_iteration(step, index, None, event.payload.get("error"))
        elif "reference" in result:
            self.iterations.setdefault(step, {})[index] = result["reference"]
        else:
            execution.note_iteration(step, index, result.get("context"), None)


async def with_values(event: Envelope, payloads: PayloadStore) -> Envelope:
    """The event with its assignments and its workload as they were before large values were stored outside."""
    found = {name: event.payload[name] for name in VALUES if event.payload.get(name)}
    values = {name: await resolve_values(said, payloads) for name, said in found.items()}
    if values == found:
        return event
    return msgspec.structs.replace(event, payload={**event.payload, **values})


def _entering(playbook: Playbook, entry: str) -> Playbook:
    if entry not in playbook.steps:
        raise InvalidInput(f"there is no step '{entry}' in {playbook.path}", hint=f"steps: {', '.join(playbook.steps)}")
    return playbook if entry == playbook.entry else msgspec.structs.replace(playbook, entry=entry)
