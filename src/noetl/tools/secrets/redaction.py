"""Redaction: secret values out of data, text and errors before they leave the process.

A value that is a secret becomes `{"$secret": "<alias>.<field>"}`, so that a reader sees which one it was; a secret
inside a longer text becomes `***`. Redact before cutting a text short: half a secret is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from noetl.kernel.lazy import LAZY, Composite, is_lazy
from noetl.playbook.templates import is_template, paths
from noetl.tools.secrets.spellings import SHORTEST, parts_of, spellings_of, whole_spellings_of

__all__ = ["MARKER", "MASK", "Redactor"]

MASK = "***"
MARKER = "$secret"

_REFERENCE = re.compile(r"\{\{-?\s*keychain((?:\.[A-Za-z_]\w*|\[\s*(?:'[^'{}]*'|\"[^\"{}]*\")\s*\])+)\s*-?\}\}")
_PART = re.compile(r"[^.\[\]'\"\s]+")
_SEPARATOR = "\0"


class Redactor:
    """Knows secrets by value. Adding is rare, asking is frequent.

    Plain substring search for each spelling beats one compiled alternation over large texts by a factor of two
    (80 spellings: 10 against 22 ms a megabyte), and many small texts are searched as one.
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        self._needles: set[str] = set()

    def add(self, label: str, value: Any, *, secret: bool = True) -> None:
        """Learn a value and all that is in it. One that is not secret is hidden only where it is named."""
        if isinstance(value, dict):
            for key, inner in value.items():
                self.add(f"{label}.{key}", inner, secret=secret)
        elif isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                self.add(f"{label}.{index}", inner, secret=secret)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            self._learn(label, str(value), secret)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing yet that it would take out of a value."""
        return not self._needles

    def text(self, text: str) -> str:
        """A text with each secret in it as `***`."""
        while (masked := _masked(text, self._found_in(text))) != text:
            text = masked
        return text

    def value(self, value: Any) -> Any:
        """Any JSON value without secrets; the very same object when there are none in it."""
        present = self._present(value) if self._needles else []
        return self._redacted(value, present) if present else value

    def error(self, error: BaseException) -> str:
        """What an error says, without secrets."""
        return self.text(str(error) or type(error).__name__)

    def symbolic(self, written: Any, rendered: Any) -> Any:
        """A rendered input as it may be recorded, given the templates it was rendered from.

        Where a template is a keychain reference its name is recorded whatever the value is, a short one or a host
        name included; where a secret was computed with, the whole outcome is hidden. The rest is redacted by value.
        """
        if isinstance(written, dict) and isinstance(rendered, dict):
            return {self.text(key): self.symbolic(written.get(key), inner) for key, inner in rendered.items()}
        if isinstance(written, list) and isinstance(rendered, list) and len(written) == len(rendered):
            return [self.symbolic(*pair) for pair in zip(written, rendered, strict=True)]
        if isinstance(written, str) and "keychain" in written and is_template(written) and rendered is not None:
            return self._named(written, rendered)
        return self.value(rendered)

    def _learn(self, label: str, text: str, secret: bool) -> None:
        if self._values.get(label) == text and (not secret or text in self._whole or len(text) < SHORTEST):
            return
        self._values[label] = text
        if not secret or len(text) < SHORTEST:
            return
        for spelling in whole_spellings_of(text):
            if len(spelling) >= SHORTEST:
                self._whole.setdefault(spelling, label)
        for part in parts_of(text):
            if len(part) >= SHORTEST:
                self._needles |= spellings_of(part)

    def _named(self, written: str, rendered: Any) -> Any:
        reference = _REFERENCE.fullmatch(written.strip())
        if reference:
            return _marked(_label(reference[1]), rendered)
        labels = [_label(found[1]) for found in _REFERENCE.finditer(written)]
        if "keychain" in _REFERENCE.sub("", written) or not isinstance(rendered, str):
            return {MARKER: _first_label(written)}
        for text in sorted((self._values.get(label, "") for label in labels), key=len, reverse=True):
            rendered = rendered.replace(text, MASK) if text else rendered
        return self.value(rendered)

    def _redacted(self, value: Any, present: list[str]) -> Any:
        if isinstance(value, str):
            return self._redacted_text(value) if any(needle in value for needle in present) else value
        if isinstance(value, dict):
            return value if self._is_marker(value) else self._redacted_mapping(value, present)
        if isinstance(value, list | tuple):
            return [self._redacted(inner, present) for inner in value]
        if isinstance(value, LAZY):
            from noetl.payloads.masking import masked

            return masked(value, present, lambda inner: self._redacted(inner, present))
        if isinstance(value, int | float) and not isinstance(value, bool) and (label := self._whole.get(str(value))):
            return {MARKER: label}
        return value

    def _redacted_text(self, text: str) -> Any:
        while True:
            if label := self._whole.get(text):
                return {MARKER: label}
            masked = _masked(text, self._found_in(text))
            if masked == text:
                return text
            text = masked

    def _redacted_mapping(self, value: dict[Any, Any], present: list[str]) -> dict[Any, Any]:
        redacted: dict[Any, Any] = {}
        for key, inner in value.items():
            hit = isinstance(key, str) and any(needle in key for needle in present)
            name = given = self.text(key) if hit else key
            while name in redacted or (name != key and name in value):
                name = f"{given}~{len(redacted)}"  # two names that differ in a secret only
                given += "~"
            redacted[name] = self._redacted(inner, present)
        return redacted

    def _is_marker(self, value: dict[Any, Any]) -> bool:
        """Ours, and not a secret that somebody has dressed as one."""
        return len(value) == 1 and isinstance(label := value.get(MARKER), str) and label in self._values

    def _present(self, value: Any) -> list[str]:
        """The spellings that are somewhere in a value; only these have to be looked for in each of its texts."""
        texts: list[Any] = []
        tables: list[Any] = []
        _gather(value, texts, tables)
        joined = _joined(texts)
        found = [needle for needle in self._needles if needle in joined]
        if tables:
            from noetl.payloads.masking import present

            found += present(tables, self._needles.difference(found))
        return found

    def _found_in(self, text: str) -> list[tuple[int, int]]:
        """Where secrets are, as spans in order. Overlapping ones are all found: none may leave its end behind."""
        return sorted(
            (start, start + len(needle))
            for needle in self._needles
            if needle in text
            for start in _starts(needle, text)
        )


def _starts(needle: str, text: str) -> Iterator[int]:
    start = text.find(needle)
    while start >= 0:
        yield start
        start = text.find(needle, start + 1)


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    reached = 0
    for start, end in spans:
        if start >= reached:
            pieces += [text[reached:start], MASK]
        reached = max(reached, end)
    return "".join([*pieces, text[reached:]]) if spans else text


def _gather(value: Any, texts: list[Any], tables: list[Any]) -> None:
    """All texts of a value, keys that are none as they are, and its tables, which are searched by themselves."""
    waiting: list[Iterable[Any]] = [(value,)]
    while waiting:
        for element in waiting.pop():
            kind = type(element)
            if kind is str:
                texts.append(element)
            elif kind is dict:
                texts += element
                waiting.append(element.values())
            elif kind is list:
                waiting.append(element)
            elif kind is int or kind is float:
                texts.append(str(element))
            elif element is not None and kind is not bool:
                _gather_other(element, texts, tables, waiting)


def _gather_other(element: Any, texts: list[Any], tables: list[Any], waiting: list[Iterable[Any]]) -> None:
    if isinstance(element, str):
        texts.append(element)
    elif isinstance(element, int | float):
        texts.append(str(element))
    elif isinstance(element, dict | Composite):
        texts += element
        waiting.append(element.values())
    elif isinstance(element, list | tuple):
        waiting.append(element)
    elif is_lazy(element):
        tables.append(element)


def _joined(texts: list[Any]) -> str:
    try:
        return _SEPARATOR.join(texts)
    except TypeError:  # a key that is no text
        return _SEPARATOR.join(map(str, texts))


def _label(reference: str) -> str:
    """`.crm['token']` is `crm.token`."""
    return ".".join(_PART.findall(reference))


def _marked(label: str, rendered: Any) -> Any:
    """The name in place of the value; of a whole entry, the names of its fields."""
    if isinstance(rendered, dict) and rendered and "." not in label:
        return {field: {MARKER: f"{label}.{field}"} for field in rendered}
    return {MARKER: label}


def _first_label(written: str) -> str:
    named = sorted(path[1:] for path in paths(written) if path[0] == "keychain")
    return ".".join(named[0]) if named and named[0] else "keychain"
