"""What `noetl run` was asked to run: the last playbook of a file, or one of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api import sources
from noetl.api.sources import Source, reference_of, source_in, unknown
from noetl.cli.output import note
from noetl.errors import InvalidInput
from noetl.playbook.parse import parse

if TYPE_CHECKING:
    from noetl.runtime.wiring import Embedded

__all__ = ["Source", "in_catalog", "in_file", "register_beside", "unknown"]


def in_file(ref: str) -> Source | None:
    """The playbook of a file, or None when the reference is a catalog path. A bad document creates nothing."""
    text = sources.read_text(ref)
    if text is None:
        return None
    from noetl.tools.registry import Registry

    parsed = parse(text, ref, kinds=Registry().user_kinds())
    for problem in parsed.problems:
        note(str(problem))
    if not parsed.ok:
        errors = sum(problem.is_error for problem in parsed.problems)
        what = f"{errors} errors" if errors > 1 else "an error"
        raise InvalidInput(f"{ref} has {what}; nothing was run", hint=f"noetl validate {ref} shows the lines")
    return source_in(text, ref, "file", parsed)


async def in_catalog(embedded: Embedded, tenant_id: str, ref: str, version: str | None) -> Source:
    """A registered playbook by `path`, `path@version` or `catalog://path@version`. Raises NotFound."""
    return await sources.in_catalog(embedded, tenant_id, reference_of(ref, version))


async def register_beside(embedded: Embedded, tenant_id: str, source: Source) -> None:
    """Register the other documents of the file, and say so."""
    for registered in await sources.register_beside(embedded, tenant_id, source):
        note(f"registered {registered}")
