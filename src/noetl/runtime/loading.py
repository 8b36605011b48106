"""From the log back to executions in memory."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection

import msgspec

from noetl.engine.control import Control
from noetl.engine.folding import apply
from noetl.errors import InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.streams import execution_stream
from noetl.payloads.store import PayloadStore
from noetl.playbook.document import Playbook
from noetl.playbook.parse import load
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.execution import Execution
from noetl.runtime.externalize import VALUES, resolve_values

__all__ = ["Documents", "Loader", "with_values"]

_KEPT = 256
_PAGE = 1000


class Documents:
    """Documents by their digest, read once however often they are started."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._kept: OrderedDict[str, Playbook] = OrderedDict()

    def playbook(self, text: str, file: str, entry: str | None) -> Playbook:
        """The document, entered at a step other than its own if one is named. Raises what `load` raises."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in self._kept:
            self._kept[digest] = load(text, file, kinds=self._kinds)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        playbook = self._kept[digest]
        return playbook if entry is None else _entering(playbook, entry)


class Loader:
    """Reads executions from their own streams."""

    def __init__(self, ledger: Ledger, payloads: PayloadStore, documents: Documents, tenant_id: str) -> None:
        self._ledger = ledger
        self._payloads = payloads
        self._documents = documents
        self._tenant_id = tenant_id

    async def load(self, execution_id: int) -> Execution:
        """The execution as the log has it now. Raises NotFound."""
        stream = Stream(self._tenant_id, execution_stream(execution_id))
        control = Control(execution_id=execution_id)
        execution: Execution | None = None
        version = 0
        while page := await self._ledger.read(stream, after_version=version, limit=_PAGE):
            for item in page:
                event = await with_values(item.event, self._payloads)
                apply(control, event)
                if execution is None:
                    execution = await self._opened(stream, control, event)
                await self._take(execution, event)
            version = page[-1].event.stream_version
        if execution is None:
            raise NotFound(f"there is no execution {execution_id}", hint="noetl list shows the ones there are")
        execution.version = version
        execution.ended = control.ended
        return execution

    async def _opened(self, stream: Stream, control: Control, event: Envelope) -> Execution:
        said = event.payload.get("document", {})
        digest = said.get("sha256", "")
        uri = f"noetl://{event.tenant_id}/{event.project_id}/payloads/sha256/{digest}"
        ref = PayloadRef(uri=uri, sha256=digest, media_type="application/yaml", bytes=said.get("bytes", 0))
        text = (await self._payloads.fetch(ref)).decode()
        playbook = self._documents.playbook(text, said.get("file", "<document>"), said.get("entry"))
        execution = Execution(stream, playbook, control, text, said.get("file", playbook.path))
        execution.principal = event.principal
        return execution

    async def _take(self, execution: Execution, event: Envelope) -> None:
        payload = await self._whole(event)
        issued = execution.commands.get(event.command_id or 0, {})
        if event.event_type in ("call.done", "call.error") and "loop_index" in issued:
            error = payload.get("error") if event.event_type == "call.error" else None
            execution.note_iteration(
                event.node_name or "", issued["loop_index"], payload["result"].get("context"), error
            )
        execution.remember(event, payload)

    async def _whole(self, event: Envelope) -> Json:
        """The payload with what was stored outside of the event."""
        if event.payload_ref is None or event.payload_ref.media_type != "application/json":
            return event.payload
        stored = canonical.decode(await self._payloads.fetch(event.payload_ref))
        return {**event.payload, **stored}


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
