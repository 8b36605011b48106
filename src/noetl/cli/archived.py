"""Archiving after a run, where the settings ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.cli.output import note
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.runtime.embedded.runner import Finished
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["archived"]


async def archived(embedded: Embedded, settings: Settings, finished: Finished) -> str | None:
    """Archive a run with all that it has called; where, or None if that does not work: the run itself has ended.

    One that another execution has called is archived with its caller.
    """
    from noetl.kernel.streams import execution_stream
    from noetl.kernel.tail import Stream
    from noetl.runtime.archiving import open_archiver

    assert embedded.home is not None
    root = Stream(settings.tenant.id, execution_stream(finished.execution_id))
    try:
        archiver = await open_archiver(embedded, embedded.home, settings)
        return (await archiver.archive(root)).entry.uri
    except NoetlError as error:
        note(f"it is not archived: {error}; noetl archive {finished.execution_id} tries again")
        return None
