"""From text to documents."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from noetl.errors import InvalidDocument
from noetl.playbook.document import Document, Playbook
from noetl.playbook.problems import Problem, Report
from noetl.playbook.source import Node, positions_of, read
from noetl.playbook.validate.root import kind_of, read_playbook
from noetl.playbook.validate.shapes import Context

__all__ = ["Parsed", "load", "parse"]


class Parsed(msgspec.Struct, frozen=True):
    """The valid documents of a file, and all that is wrong or doubtful in it, in order of position."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether every document is valid."""
        return not any(problem.is_error for problem in self.problems)


def parse(text: str, file: str = "<text>", *, kinds: Collection[str] = ()) -> Parsed:
    """Read a file of documents. Never raises for a bad one: all problems come back in one go.

    `kinds` are tool kinds known beside the built-in ones.
    """
    report = Report(file)
    roots = read(text, report)
    documents = [(root, _read_document(report, root, kinds)) for root in roots]
    problems = report.problems()
    wrong = [problem.line for problem in problems if problem.is_error]
    valid = (
        document
        for root, document in documents
        if document is not None and not any(root.line <= line <= root.last for line in wrong)
    )
    return Parsed(tuple(valid), problems)


def load(text: str, file: str = "<text>", *, kinds: Collection[str] = ()) -> Playbook:
    """The one playbook of a file, or InvalidDocument with everything that is wrong with it."""
    parsed = parse(text, file, kinds=kinds)
    errors = [problem for problem in parsed.problems if problem.is_error]
    if errors:
        raise InvalidDocument(errors)
    playbooks = [document for document in parsed.documents if isinstance(document, Playbook)]
    if len(playbooks) != 1 or len(parsed.documents) != 1:
        found = ", ".join(f"{type(document).__name__} '{document.path}'" for document in parsed.documents)
        raise InvalidDocument([f"{file}: expected one playbook, found {found}"])
    return playbooks[0]


def _read_document(report: Report, root: Node, kinds: Collection[str]) -> Document | None:
    if not root.is_mapping:
        report.add("NTL-102", root, field="document", shape="a mapping")
        return None
    context = Context(report, kinds)
    document: Document
    if kind_of(report, root) == "Subscription":
        from noetl.playbook.validate.subscription import read_subscription

        document = read_subscription(context, root)
    else:
        document = read_playbook(context, root)
    positions = positions_of(root)
    for at, node in context.moved.items():
        positions.places.update(positions_of(node, at).places)
    return msgspec.structs.replace(document, positions=positions)
