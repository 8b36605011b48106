"""What is to be run: a file, a text, something built in Python, or a path of the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import InvalidDocument, InvalidInput, NotFound
from noetl.playbook.builder import Builder
from noetl.playbook.document import Playbook
from noetl.playbook.parse import Parsed, parse
from noetl.playbook.split import documents_of

if TYPE_CHECKING:
    from noetl.runtime.wiring import Embedded

__all__ = [
    "Beside",
    "Reference",
    "Runnable",
    "Source",
    "in_catalog",
    "read_text",
    "reference_of",
    "register_beside",
    "source_in",
    "source_of",
    "unknown",
]

Runnable = str | PathLike[str] | Playbook | Builder | Mapping[str, Any]
"""What `noetl.run` accepts."""

_ENDINGS = (".yaml", ".yml")


class Beside(msgspec.Struct, frozen=True):
    """Another document of the file, which the one that runs may call."""

    path: str
    kind: str
    text: str


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A playbook to run, and where it is from."""

    path: str
    text: str
    file: str
    origin: str
    beside: tuple[Beside, ...] = ()


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A playbook that the catalog knows; without a version the latest one."""

    path: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.path}@{self.version}" if self.version else self.path


def source_of(playbook: Runnable) -> Source | Reference:
    """What a caller means. Raises InvalidDocument, or NotFound for a file that is not there.

    Text with a line break is a document; any other text is the name of a file, or else a path of the catalog.
    Whatever is in no file is recorded as ephemeral.
    """
    if isinstance(playbook, Builder | Playbook):
        return _valid(playbook.to_yaml(), "<builder>", "ephemeral")
    if isinstance(playbook, Mapping):
        from noetl.playbook.writing import dump

        return _valid(dump(dict(playbook)), "<mapping>", "ephemeral")
    if not isinstance(playbook, str | PathLike):
        raise InvalidInput(
            f"cannot run {type(playbook).__name__}",
            hint="give a file, a catalog path, YAML text, a Playbook or a builder",
        )
    if isinstance(playbook, str) and "\n" in playbook:
        return _valid(playbook, "<text>", "ephemeral")
    name = str(Path(playbook)) if isinstance(playbook, PathLike) else playbook
    text = read_text(name)
    if text is not None:
        return _valid(text, name, "file")
    if isinstance(playbook, PathLike):
        raise _no_file(Path(playbook))
    return reference_of(name)


def reference_of(ref: str, version: str | None = None) -> Reference:
    """`path`, `path@version` or `catalog://path@version`; a version of its own wins."""
    path, _, said = ref.removeprefix("catalog://").partition("@")
    return Reference(path=path.strip("/"), version=version or said or None)


def source_in(text: str, file: str, origin: str, parsed: Parsed) -> Source:
    """The last playbook of a text without errors, and the documents beside it.

    The playbook's text keeps its place, so that positions in it are positions in the file.
    """
    parts = documents_of(text)
    places = [place for place, document in enumerate(parsed.documents) if isinstance(document, Playbook)]
    if not places:
        raise InvalidDocument([f"{file}: there is no playbook in this file"])
    beside = tuple(
        Beside(document.path, type(document).__name__, part)
        for place, (document, part) in enumerate(zip(parsed.documents, parts, strict=True))
        if place != places[-1]
    )
    chosen = parsed.documents[places[-1]]
    text = _in_place(text, parts, places[-1])
    return Source(path=chosen.path, text=text, file=file, origin=origin, beside=beside)


async def in_catalog(embedded: Embedded, tenant_id: str, reference: Reference) -> Source:
    """A registered playbook. Raises NotFound."""
    from noetl.runtime.embedded.runner import find_document

    try:
        entry = await find_document(embedded.catalog, tenant_id, reference.path, reference.version)
    except NotFound as error:
        if reference.version is not None:
            raise
        raise unknown(reference.path) from error
    return Source(path=entry.path, text=entry.content, file=f"{entry.path}@{entry.version}", origin="catalog")


def unknown(ref: str) -> NotFound:
    """What to say of a reference that leads nowhere."""
    return NotFound(f"there is neither a file nor a registered playbook '{ref}'", hint="noetl register FILE")


async def register_beside(embedded: Embedded, tenant_id: str, source: Source) -> Sequence[str]:
    """Register the other documents of the file, except those that the catalog has just like this; says which."""
    registered = []
    for document in source.beside:
        try:
            latest = (await embedded.catalog.get(tenant_id, document.path)).content
        except NotFound:
            latest = None
        if latest != document.text:
            entry = await embedded.catalog.register(tenant_id, document.path, document.kind, document.text)
            registered.append(f"{entry.path} version {entry.version}")
    return registered


def read_text(name: str) -> str | None:
    """The text of a file, or None when the name is not that of a file."""
    path = Path(name)
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise InvalidInput(f"cannot read {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"cannot read {name}: it is not UTF-8 text") from None
    if path.is_dir():
        raise InvalidInput(f"{name} is a directory", hint="name one file, or a catalog path")
    if path.suffix in _ENDINGS:
        raise _no_file(path)
    return None


def _no_file(path: Path) -> NotFound:
    import difflib

    there = (
        sorted(file.name for file in path.parent.glob("*") if file.suffix in _ENDINGS) if path.parent.is_dir() else []
    )
    stems = {Path(name).stem: name for name in reversed(there)}
    near = difflib.get_close_matches(path.stem, stems, n=1)
    if near:
        return NotFound(f"there is no file {path}", hint=f"did you mean {path.with_name(stems[near[0]])}?")
    found = f"{path.parent} has {', '.join(there[:10])}" if there else "name a file, or a path of the catalog"
    return NotFound(f"there is no file {path}", hint=found)


def _valid(text: str, file: str, origin: str) -> Source:
    import warnings

    from noetl.api.failures import PlaybookWarning
    from noetl.tools.registry import Registry

    parsed = parse(text, file, kinds=Registry().user_kinds())
    if not parsed.ok:
        raise InvalidDocument([problem for problem in parsed.problems if problem.is_error])
    for problem in parsed.problems:
        warnings.warn(str(problem), PlaybookWarning, stacklevel=4)
    return source_in(text, file, origin, parsed)


def _in_place(text: str, parts: list[str], place: int) -> str:
    if len(parts) == 1:
        return text
    before = 0
    for part in parts[: place + 1]:
        before = text.index(part, before) + (len(part) if part is not parts[place] else 0)
    return "\n" * text.count("\n", 0, before) + parts[place]
