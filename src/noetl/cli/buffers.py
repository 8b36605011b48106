"""Local buffers as the command line makes them: after a run, and before a push."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from noetl.errors import StorageFull, Unavailable

if TYPE_CHECKING:
    from noetl.runtime.embedded.runner import Finished
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["buffered"]


async def buffered(embedded: Embedded, settings: Settings, home: Path, finished: Finished) -> str:
    """Leave a run and those it called as files; where they are. The run itself has ended, whatever happens here."""
    from noetl.kernel.streams import execution_stream
    from noetl.kernel.tail import Stream
    from noetl.runtime.buffers import keep_buffers

    root = Stream(settings.tenant.id, execution_stream(finished.execution_id))
    try:
        directories = await keep_buffers(embedded, home, root)
    except Unavailable as error:
        kind = StorageFull if isinstance(error, StorageFull) else Unavailable
        raise kind(
            f"execution {finished.execution_id} ended {finished.status}, but was not kept as files: {error.message}",
            hint=f"nothing is lost: noetl push {finished.execution_id} makes them again from the ledger",
        ) from None
    return str(directories[0])
