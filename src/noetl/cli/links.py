"""A link to the object of a result: for people and programs that have no credentials, and only for a while.

Whoever has the link can read the object, so it is printed and written down nowhere else.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from noetl.cli.output import note, print_json
from noetl.errors import NotFound

if TYPE_CHECKING:
    from noetl.runtime.execution import Execution
    from noetl.runtime.wiring import Embedded

__all__ = ["print_link"]


async def print_link(embedded: Embedded, found: Execution, step: str, seconds: float, as_json: bool) -> None:
    """Print an address that reads the stored result of a step. Raises NotFound, InvalidInput, Unavailable."""
    from noetl.runtime.storage import payload_ref_of

    reference = found.control.steps[step].result.get("reference")
    if reference is None:
        raise NotFound(
            f"the result of step '{step}' stands in its event and has no object", hint="see it with noetl result"
        )
    ref = payload_ref_of(reference)
    if not await embedded.payloads.exists(ref):
        raise NotFound(f"the object of '{ref.uri}' is not in the store", hint="noetl repair may restore it")
    link = await embedded.objects.signed_url(embedded.payloads.key(ref), expires_in=timedelta(seconds=seconds))
    if as_json:
        about = {"media_type": ref.media_type, "bytes": ref.bytes, "sha256": ref.sha256, "rows": ref.rows}
        print_json({"execution_id": str(found.control.execution_id), "step": step, "link": link, **about})
        return
    click.echo(link)
    note(f"{ref.media_type}, {ref.bytes} bytes, compressed with zstd")
