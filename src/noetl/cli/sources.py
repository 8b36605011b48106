"""What `noetl run` was asked to run: the last playbook of a file, or one of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.cli.output import note
from noetl.errors import InvalidDocument, InvalidInput, NotFound
from noetl.playbook.document import Playbook
from noetl.playbook.parse import parse
from noetl.playbook.split import documents_of

if TYPE_CHECKING:
    from noetl.runtime.wiring import Embedded

__all__ = ["Beside", "Source", "in_catalog", "in_file", "register_beside", "unknown"]

_ENDINGS = (".yaml", ".yml")


class Beside(msgspec.Struct, frozen=True):
    """Another document of the file, which the one that runs may call."""

    path: str
    kind: str
    text: str


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A playbook to run, and where it is from."""

    text: str
    file: str
    origin: str
    beside: tuple[Beside, ...] = ()


def in_file(ref: str) -> Source | None:
    """The playbook of a file, or None when the reference is a catalog path. A bad document creates nothing.

    Of several documents the last playbook runs. Its text keeps its place in the file, so that positions in it
    are positions in the file.
    """
    text = _read(ref)
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
    parts = documents_of(text)
    places = [place for place, document in enumerate(parsed.documents) if isinstance(document, Playbook)]
    if not places:
        raise InvalidDocument([f"{ref}: there is no playbook in this file"])
    beside = tuple(
        Beside(document.path, type(document).__name__, part)
        for place, (document, part) in enumerate(zip(parsed.documents, parts, strict=True))
        if place != places[-1]
    )
    return Source(text=_in_place(text, parts, places[-1]), file=ref, origin="file", beside=beside)


async def in_catalog(embedded: Embedded, tenant_id: str, ref: str, version: str | None) -> Source:
    """A registered playbook by `path`, `path@version` or `catalog://path@version`. Raises NotFound."""
    from noetl.runtime.embedded.runner import find_document

    path, _, said = ref.removeprefix("catalog://").partition("@")
    wanted = version or said or None
    try:
        entry = await find_document(embedded.catalog, tenant_id, path, wanted)
    except NotFound as error:
        if wanted is not None:
            raise
        raise unknown(ref) from error
    return Source(text=entry.content, file=f"{entry.path}@{entry.version}", origin="catalog")


def unknown(ref: str) -> NotFound:
    """What to say of a reference that leads nowhere."""
    return NotFound(f"there is neither a file nor a registered playbook '{ref}'", hint="noetl register FILE")


async def register_beside(embedded: Embedded, tenant_id: str, source: Source) -> None:
    """Register the other documents of the file, except those that the catalog has just like this."""
    for document in source.beside:
        try:
            latest = (await embedded.catalog.get(tenant_id, document.path)).content
        except NotFound:
            latest = None
        if latest != document.text:
            entry = await embedded.catalog.register(tenant_id, document.path, document.kind, document.text)
            note(f"registered {entry.path} version {entry.version}")


def _in_place(text: str, parts: list[str], place: int) -> str:
    if len(parts) == 1:
        return text
    before = 0
    for part in parts[: place + 1]:
        before = text.index(part, before) + (len(part) if part is not parts[place] else 0)
    return "\n" * text.count("\n", 0, before) + parts[place]


def _read(ref: str) -> str | None:
    path = Path(ref)
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise InvalidInput(f"cannot read {ref}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"cannot read {ref}: it is not UTF-8 text") from None
    if path.is_dir():
        raise InvalidInput(f"{ref} is a directory", hint="name one file, or a catalog path")
    if path.suffix in _ENDINGS:
        raise NotFound(f"there is no file {ref}")
    return None
