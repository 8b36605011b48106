"""From what the ledger knows of a forgotten root to the events in its bundle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from noetl.archive.whole import Unpack
from noetl.errors import IntegrityMismatch
from noetl.kernel.event import Envelope
from noetl.kernel.streams import execution_of
from noetl.ports.forgetting import Forgotten
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.archive.bundle import Bundle

__all__ = ["OpenBundle", "bundles", "unpacked"]

OpenBundle = Callable[[str], "Awaitable[Bundle]"]


def bundles(settings: Settings) -> OpenBundle:
    """How a bundle is opened by its address."""

    async def open_one(uri: str) -> Bundle:
        from noetl.archive.bundle import open_bundle  # only needed where something was forgotten
        from noetl.runtime.archiving.places import open_uri

        return await open_bundle(*await open_uri(uri, settings))

    return open_one


def unpacked(open_one: OpenBundle) -> Unpack:
    """How forgotten roots are read, given how a bundle is opened."""

    async def unpack(left: Forgotten) -> AsyncIterator[Envelope]:
        bundle = await open_one(left.uri)
        if bundle.manifest_sha256 != left.manifest_sha256:
            raise IntegrityMismatch(
                f"{left.uri}: its manifest is not the one that the events were left to", hint="the archive was changed"
            )
        async for event in bundle.events(execution_of(left.root.stream_id)):
            yield event

    return unpack
