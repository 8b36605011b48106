"""What the events of a bundle refer to: which objects, and which of them are copied."""

from __future__ import annotations

import msgspec

from noetl.archive.bundle.layout import ResultEntry, object_path
from noetl.archive.bundle.writer import BundleWriter
from noetl.data.stage.listing import listed_in
from noetl.errors import NotFound
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.names import PayloadName
from noetl.payloads.store import PayloadStore
from noetl.runtime.references import document_of, listings_of, mentions_of, object_of, references_of

__all__ = ["Belongings"]


class Belongings:
    """Gathers references while events pass by, and then copies what is to be copied.

    With `everything` each object is copied, and one that is gone is an error; otherwise only the texts of playbooks.
    """

    def __init__(self, payloads: PayloadStore, *, everything: bool, nothing: bool = False) -> None:
        self._payloads = payloads
        self._everything = everything
        self._nothing = nothing
        self._found: dict[str, tuple[int, PayloadRef]] = {}
        self._texts: set[str] = set()
        self._listings: dict[str, PayloadRef] = {}
        self._mentions: dict[str, tuple[int, PayloadName]] = {}
        self.outputs: list[Json] = []
        """What was made by which step, for the lineage."""

    def take(self, event: Envelope) -> None:
        """Note what an event refers to."""
        text = document_of(event)
        for ref in references_of(event):
            if object_of(ref) not in self._found:
                self._note(event, ref)
        if text is not None:
            self._texts.add(object_of(text))
        for listing in listings_of(event):
            self._listings.setdefault(object_of(listing), listing)
        for name in mentions_of(event) if self._everything else ():
            self._mentions.setdefault(name.sha256, (event.event_id, name))

    async def copy(self, writer: BundleWriter) -> list[ResultEntry]:
        """Look into lists, copy what is to be copied, and say what there is."""
        for listing in self._listings.values():
            await self._look_into(listing)
        for sha256, (event_id, name) in self._mentions.items():
            if not any(ref.sha256 == sha256 for _, ref in self._found.values()):
                try:  # somebody's text, and perhaps no more than that
                    self._found[sha256] = (event_id, await self._payloads.ref_of(name))
                except NotFound:
                    continue
        return [await self._entry(writer, key, *found) for key, found in self._found.items()]

    def _note(self, event: Envelope, ref: PayloadRef) -> None:
        self._found[object_of(ref)] = (event.event_id, ref)
        self.outputs.append(
            {
                "execution_id": None if event.execution_id is None else str(event.execution_id),
                "step": event.node_name,
                "uri": ref.uri,
                "sha256": ref.sha256,
                "media_type": ref.media_type,
                "bytes": ref.bytes,
                "rows": ref.rows,
            }
        )

    async def _look_into(self, listing: PayloadRef) -> None:
        event_id = self._found[object_of(listing)][0] if object_of(listing) in self._found else 0
        try:
            data = await self._payloads.fetch(listing)
        except NotFound as error:
            if self._everything:
                raise _gone(event_id, error) from None
            return
        for ref in listed_in(data, listing):
            self._found.setdefault(object_of(ref), (event_id, ref))

    async def _entry(self, writer: BundleWriter, key: str, event_id: int, ref: PayloadRef) -> ResultEntry:
        wanted = self._everything or (key in self._texts and not self._nothing)
        copied = wanted and await self._copy(writer, event_id, ref)
        plain: Json = msgspec.to_builtins(msgspec.structs.replace(ref, ipc=None))
        return ResultEntry(event_id=str(event_id), ref=plain, copied=copied)

    async def _copy(self, writer: BundleWriter, event_id: int, ref: PayloadRef) -> bool:
        try:
            await writer.copy(object_path(ref.sha256), ref.sha256, ref.bytes, lambda: self._payloads.open(ref))
        except NotFound as error:
            if self._everything:
                raise _gone(event_id, error) from None
            return False
        return True


def _gone(event_id: int, error: NotFound) -> NotFound:
    return NotFound(
        f"event {event_id} needs a payload that is gone: {error.message}",
        hint="noetl repair may bring it back; without --with-payloads the history is archived without it",
    )
