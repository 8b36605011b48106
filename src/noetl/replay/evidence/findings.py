"""What a check of evidence has found: each finding names the artefact and the field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["Finding", "Findings", "differing"]

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_NAMED = re.compile(r"^Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)
_WIDTH = 80


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that does not hold: in which file, at which field, and what it is."""

    artifact: str
    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.artifact}, {self.field}: {self.what}"


class Findings:
    """All that was found, in order."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def add(self, artifact: str, field: str, what: str) -> None:
        """One more."""
        self.all.append(Finding(artifact=artifact, field=field, what=what))

    def add_shape(self, artifact: str, error: Exception, prefix: str = "") -> None:
        """A document that is not of its shape, in the words of the decoder, at the field that it names."""
        told = _PLACE.match(str(error))
        assert told is not None
        what, path = told["what"], told["path"] or ""
        if named := _NAMED.match(what):
            path = f"{path}.{named['name']}" if path else named["name"]
            what = "is missing" if named["what"] == "missing required" else "is not a field that evidence has"
        self.add(artifact, ".".join(part for part in (prefix, path) if part) or "(document)", what)

    def compare(self, artifact: str, said: msgspec.Struct, found: msgspec.Struct) -> None:
        """What a document says against what it comes to, field by field."""
        for field, told, computed in differing("", msgspec.to_builtins(said), msgspec.to_builtins(found)):
            self.add(artifact, field, f"says {shown(told)}, and it comes to {shown(computed)}")


def differing(name: str, said: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:
    """The innermost places where two plain values differ."""
    if isinstance(said, dict) and isinstance(found, dict):
        for key in [*said, *(key for key in found if key not in said)]:
            yield from differing(f"{name}.{key}" if name else key, said.get(key), found.get(key))
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for number, (one, other) in enumerate(zip(said, found, strict=True)):
            yield from differing(f"{name}[{number}]", one, other)
    elif said != found:
        yield name, said, found


def shown(value: Any) -> str:
    """A value in a message: enough to recognise it."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "…"
