"""A file of several documents, as the texts of its documents."""

from __future__ import annotations

import yaml

__all__ = ["documents_of"]


def documents_of(text: str) -> list[str]:
    """The text of each document, exactly as written, in order. Empty documents are left out."""
    lines = text.splitlines(keepends=True)
    starts = [
        event.start_mark.line
        for event in yaml.parse(text, Loader=yaml.CSafeLoader)
        if isinstance(event, yaml.DocumentStartEvent) and event.start_mark is not None
    ]
    parts = ["".join(lines[begin:end]) for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    return [part for part in parts if yaml.compose(part, Loader=yaml.CSafeLoader) is not None]
