"""A source that has what was archived: bundles with payloads, and the text of the playbook in any bundle."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from noetl.archive.bundle.layout import object_path
from noetl.archive.bundle.reader import under
from noetl.errors import NotFound
from noetl.kernel.streams import execution_stream
from noetl.ports.ledger import Stream
from noetl.runtime.archiving.families import top_of
from noetl.runtime.archiving.places import open_uri
from noetl.runtime.repair.needs import Need
from noetl.runtime.wiring import Embedded

__all__ = ["ArchiveSource"]


class ArchiveSource:
    """The bundle of the execution that an event is of, or of the one that has called it."""

    name = "archive"

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """The copy in the bundle; nothing if it is not archived, or without its payloads."""
        uri = await self._bundle_of(need)
        if uri is None:
            return
        objects, prefix = await open_uri(uri, self._embedded.settings)
        key = under(prefix, object_path(need.ref.sha256))
        if await objects.head(key) is not None:
            yield objects.stream(key)

    async def _bundle_of(self, need: Need) -> str | None:
        event = need.event
        if event.execution_id is None:
            return None
        try:
            top = await top_of(
                self._embedded.projections, Stream(event.tenant_id, execution_stream(event.execution_id))
            )
        except NotFound:
            return None
        entry = await self._embedded.archives.get(top.root)
        return None if entry is None else entry.uri
