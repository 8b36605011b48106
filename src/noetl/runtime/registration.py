"""Registering documents: a whole file, or nothing of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from noetl.errors import InvalidDocument, InvalidInput
from noetl.playbook.document import Document
from noetl.playbook.parse import parse
from noetl.playbook.problems import Problem
from noetl.playbook.split import documents_of
from noetl.ports.catalog import Catalog, CatalogEntry

__all__ = ["Readable", "kind_of", "read_documents", "register"]


class Readable(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of a file, each with its text, and all that is wrong or doubtful in them."""

    documents: Sequence[Document]
    texts: Sequence[str]
    problems: Sequence[Problem]
    ok: bool


def read_documents(text: str, file: str, kinds: Collection[str] = ()) -> Readable:
    """Take a file apart. `kinds` are tool kinds known beside the built-in ones."""
    parsed = parse(text, file, kinds=kinds)
    texts = documents_of(text) if parsed.ok else []
    return Readable(documents=parsed.documents, texts=texts, problems=parsed.problems, ok=parsed.ok)


async def register(
    catalog: Catalog, tenant_id: str, readable: Readable, *, only: str | None = None
) -> Sequence[CatalogEntry]:
    """Add each document as the next version of its path.

    Raises InvalidDocument with every problem if one of them has an error, and InvalidInput if there is none, or one
    that is not of the kind `only`; nothing is registered then.
    """
    if not readable.ok:
        raise InvalidDocument(readable.problems)
    if not readable.documents:
        raise InvalidInput("there is no document to register", hint="give a playbook as YAML text")
    for document in readable.documents:
        if only is not None and kind_of(document).lower() != only.lower():
            raise InvalidInput(f"{document.path} is a {kind_of(document)}, not a {only}")
    return [
        await catalog.register(tenant_id, document.path, kind_of(document), text)
        for document, text in zip(readable.documents, readable.texts, strict=True)
    ]


def kind_of(document: Document) -> str:
    """`Playbook` or `Subscription`, as the document says itself."""
    return type(document).__name__
