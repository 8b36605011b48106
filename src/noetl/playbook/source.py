"""YAML text as a tree in which every key and value knows its line and column.

Built from the parser's events, without recursion, so that neither nesting nor aliases can cost more than
the limits below. No tag makes anything but plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noetl.playbook.document import Position, Positions, pointer
from noetl.playbook.problems import Report
from noetl.playbook.scalars import Scalar, Unusable, read_plain, read_tagged

__all__ = ["MAX_CHARACTERS", "MAX_DEPTH", "MAX_NODES", "Node", "positions_of", "read"]

MAX_CHARACTERS = 8 * 2**20
MAX_DEPTH = 64
MAX_NODES = 400_000
"""How many values a file may hold once its aliases are written out."""

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = {f"{_TAG}{kind}": kind for kind in ("str", "int", "float", "bool", "null")}
_COLLECTION_TAGS = {"map": (None, "!", f"{_TAG}map"), "seq": (None, "!", f"{_TAG}seq")}
_NO_KEYS: dict[str, Position] = {}


class Node:
    """A value and its place. A mapping also knows the places of its keys.

    `first` is the line on which a text begins; `last`, of a whole document, the line on which it ends.
    """

    __slots__ = ("column", "first", "height", "keys", "last", "line", "size", "value")

    def __init__(
        self, value: dict[str, Node] | list[Node] | Scalar, line: int, column: int, first: int | None = None
    ) -> None:
        self.value = value
        self.line = line
        self.column = column
        self.first = line if first is None else first
        self.last = line
        self.keys = {} if isinstance(value, dict) else _NO_KEYS
        self.size = 1
        self.height = 1

    def __repr__(self) -> str:
        return f"Node({self.value!r}, {self.line}:{self.column})"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def entries(self) -> dict[str, Node]:
        """The entries of a mapping; nothing for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The items of a list; nothing for anything else."""
        return self.value if isinstance(self.value, list) else []

    def get(self, key: str) -> Node | None:
        """The value under a key of a mapping."""
        return self.entries.get(key)

    def key(self, name: str) -> Position:
        """Where a key of this mapping stands."""
        return self.keys.get(name, Position(self.line, self.column))

    def data(self) -> Any:
        """The value as plain Python data."""
        if isinstance(self.value, dict):
            return {key: node.data() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.data() for node in self.value]
        return self.value


def read(text: str, report: Report) -> list[Node]:
    """The documents of a file. What cannot be read is reported and left out; empty documents are skipped."""
    documents: list[Node] = []
    start = Position(1, 1)
    if len(text) > MAX_CHARACTERS:
        report.add("NTL-101", start, detail=f"the file has more than {MAX_CHARACTERS} characters")
        return []
    try:
        documents.extend(node for node in _Composer(report).compose(_events(text)) if node.value is not None)
    except _Refused as refused:
        report.add("NTL-101", refused.at, detail=refused.detail)
    if not documents and not report.errors:
        report.add("NTL-101", start, detail="the file holds no document")
    return documents


def positions_of(root: Node, start: str = "") -> Positions:
    """The place of a node, which has the pointer `start`, and of everything in it."""
    places: dict[str, tuple[int, int, int]] = {}
    waiting = [(start, root)]
    while waiting:
        at, node = waiting.pop()
        places[at] = (node.line, node.column, node.first)
        if isinstance(node.value, dict):
            waiting.extend((at + pointer_part(key), child) for key, child in node.value.items())
        elif isinstance(node.value, list):
            waiting.extend((f"{at}/{index}", child) for index, child in enumerate(node.value))
    return Positions(places)


def pointer_part(key: str) -> str:
    """One part of a pointer."""
    return "/" + key if "~" not in key and "/" not in key else pointer("", key)[1:]


# --- Events -----------------------------------------------------------------------------------------------


class _Refused(Exception):
    """The text cannot be read further."""

    def __init__(self, detail: str, at: Position) -> None:
        super().__init__(detail)
        self.detail = detail
        self.at = at


def _events(text: str) -> Iterator[Any]:
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None and error.context_mark is not None and mark.index >= len(text.rstrip()):
            mark = error.context_mark  # what is open was opened there; the end of the file tells nobody anything
        context = f" {error.context}" if error.context else ""
        raise _Refused(f"{error.problem or 'unreadable'}{context}", _position(mark)) from None
    except yaml.reader.ReaderError as error:
        before = text.encode(errors="surrogatepass")[: error.position].decode(errors="replace")
        raise _Refused(str(error.reason), _end_of(before)) from None
    except UnicodeEncodeError as error:
        raise _Refused("a character that is half of a pair", _end_of(text[: error.start])) from None


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark is not None else Position(1, 1)


def _end_of(before: str) -> Position:
    return Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


# --- Composing --------------------------------------------------------------------------------------------


class _Open:
    """A collection whose end has not been seen."""

    __slots__ = ("anchor", "key", "merges", "node")

    def __init__(self, node: Node, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: tuple[str, Position] | None = None
        self.merges: list[Node] = []


class _Composer:
    """Turns events into nodes. `open` holds the collections around the event at hand."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0

    def compose(self, events: Iterator[Any]) -> Iterator[Node]:
        root: Node | None = None
        for event in events:
            name = type(event).__name__
            if name == "DocumentStartEvent":
                self._anchors.clear()
            elif name == "ScalarEvent":
                root = self._scalar(event) or root
            elif name == "DocumentEndEvent" and root is not None:
                root.last = event.start_mark.line + (event.start_mark.column > 0)
                yield root
            elif name == "AliasEvent":
                self._alias(event)
            elif name in ("MappingStartEvent", "SequenceStartEvent"):
                self._start(event, {} if name == "MappingStartEvent" else [])
            elif name in ("MappingEndEvent", "SequenceEndEvent"):
                root = self._end() or root

    def _scalar(self, event: Any) -> Node | None:
        at = _position(event.start_mark)
        awaited = self._awaited()
        if awaited is not None and awaited.key is None and awaited.node.is_mapping:
            self._take_key(awaited, event, at)
            return None
        if event.value == "" and event.style in ("", None) and awaited is not None and awaited.key is not None:
            at = awaited.key[1]  # nothing was written; what is wrong with nothing is shown at its key
        node = Node(self._value(event, at), *at, first=at.line + (event.style in ("|", ">")))
        if event.anchor:
            self._anchors[event.anchor] = node
        return self._place(node)

    def _take_key(self, mapping: _Open, event: Any, at: Position) -> None:
        plain = event.style in ("", None)
        if plain and event.value == "" and event.tag is None:
            raise _Refused("a key is missing before ':'", at)
        key = "<<" if plain and event.value == "<<" else str(event.value)
        if key in mapping.node.entries and not (plain and key == "<<"):
            self._report.add("NTL-109", at, what="key", name=key)
        mapping.key = (f"\0{key}" if plain and key == "<<" else key, at)

    def _value(self, event: Any, at: Position) -> Scalar:
        text = str(event.value)
        try:
            if event.tag is not None and event.tag != "!":
                if event.tag not in _SCALAR_TAGS:
                    raise _Refused(f"tag '{event.tag}' is not allowed", at)
                return read_tagged(_SCALAR_TAGS[event.tag], text)
            if event.style not in ("", None) or event.tag == "!":
                return text
            return read_plain(text)
        except Unusable as unusable:
            self._report.add("NTL-102", at, field=text, shape=str(unusable))
            return text

    def _alias(self, event: Any) -> None:
        at = _position(event.start_mark)
        node = self._anchors.get(event.anchor)
        if node is None:
            why = "refers to itself" if event.anchor in self._anchors else "has no anchor"
            raise _Refused(f"alias '*{event.anchor}' {why}", at)
        awaited = self._awaited()
        if awaited is not None and awaited.key is None and awaited.node.is_mapping:
            raise _Refused("a key must be text, not an alias", at)
        if len(self._open) + node.height > MAX_DEPTH:
            raise _Refused(f"nested more than {MAX_DEPTH} deep, aliases written out", at)
        self._count(node.size, at)
        self._place(node)

    def _start(self, event: Any, value: dict[str, Node] | list[Node]) -> None:
        at = _position(event.start_mark)
        awaited = self._awaited()
        if awaited is not None and awaited.key is None and awaited.node.is_mapping:
            outer = awaited.node
            if isinstance(value, dict) and (outer.line, outer.column + 1) == at:
                raise _Refused('a template must stand in quotes: "{{ … }}"', Position(outer.line, outer.column))
            raise _Refused("a key must be text", at)
        if event.tag not in _COLLECTION_TAGS["map" if isinstance(value, dict) else "seq"]:
            raise _Refused(f"tag '{event.tag}' is not allowed", at)
        if len(self._open) >= MAX_DEPTH:
            raise _Refused(f"nested more than {MAX_DEPTH} deep", at)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open(Node(value, *at), event.anchor))

    def _end(self) -> Node | None:
        closed = self._open.pop()
        for source in closed.merges:
            self._merge(closed.node, source)
        if closed.anchor:
            self._anchors[closed.anchor] = closed.node
        return self._place(closed.node)

    def _place(self, node: Node) -> Node | None:
        """Put a finished value where it belongs; give it back if it is a whole document."""
        self._count(1, node)
        awaited = self._awaited()
        if awaited is None:
            return node
        awaited.node.size += node.size
        awaited.node.height = max(awaited.node.height, node.height + 1)
        if isinstance(awaited.node.value, list):
            awaited.node.value.append(node)
        elif isinstance(awaited.node.value, dict) and awaited.key is not None:
            key, at = awaited.key
            awaited.key = None
            if key == "\0<<":
                awaited.merges.extend(self._sources(node, at))
            else:
                awaited.node.value[key] = node
                awaited.node.keys[key] = at
        return None

    def _sources(self, node: Node, at: Position) -> list[Node]:
        sources = node.items if node.is_list else [node]
        if not all(source.is_mapping for source in sources):
            raise _Refused("'<<' merges a mapping or a list of mappings", at)
        return sources

    def _merge(self, target: Node, source: Node) -> None:
        for key, child in source.entries.items():
            if key not in target.entries:
                target.entries[key] = child
                target.keys[key] = source.key(key)
                target.size += child.size
                target.height = max(target.height, child.height + 1)

    def _awaited(self) -> _Open | None:
        return self._open[-1] if self._open else None

    def _count(self, nodes: int, at: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _Refused(f"more than {MAX_NODES} values, aliases written out", Position(at.line, at.column))
