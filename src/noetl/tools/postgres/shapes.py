"""Statements that differ in their literals only, told apart from those literals.

Rows of a data stage send the same statement over and over, with other values in it. To read and plan it anew costs the
server more than to run it, so a shape that comes again is prepared once, and what differs is handed to it. A literal
becomes a parameter only when it was seen to change: what is the same in every statement stays where it is, and the
server sees it when it plans. A parameter has the type that the literal had: none yet for text, int4 for a short number.

This is about speed alone. Whatever is written in a way that is not wholly understood here is sent as it is, and where
the server does not take a shape, it is not asked again.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict

__all__ = ["Call", "Shape", "Shapes"]

# Each side begins with what it looks for and looks back from there: to look back from everywhere takes thrice as long.
_LITERAL = re.compile(r"('(?<![\w$&]')[^']*+(?:''[^']*+)*+'|[0-9](?<![\w$.][0-9])[0-9]{0,8}+(?![\w$.]))")
_NOT_UNDERSTOOD = re.compile(r"""['"$]|--|/\*""")
"""In what is left without its literals: names in quotes, E'', dollar quotes, comments."""
_BY_NUMBER = re.compile(r"\b(?:ORDER|GROUP)\b", re.IGNORECASE)
"""Where a number is no value but the place of a column."""
_MOST_SHAPES = 64

Key = tuple[str, ...]


class Call:
    """A statement as a use of a prepared one."""

    __slots__ = ("name", "preparing", "shape", "text")

    def __init__(self, shape: Shape, name: str, preparing: str, text: str) -> None:
        self.shape = shape
        self.name = name
        """What the prepared statement is called: the same name is the same statement, in whosever session."""
        self.preparing = preparing
        self.text = text


class Shape:
    """What statements have in common, and which of its literals change."""

    def __init__(self, pieces: Key, literals: list[str]) -> None:
        self._pieces = pieces
        self._literals = literals
        self._fixed = list(range(len(literals)))
        self._changing: list[int] = []
        self._are_texts: list[bool] = []
        self._name = ""
        self._preparing = ""
        self._is_refused = self._has(_NOT_UNDERSTOOD)

    def give_up(self) -> None:
        """The server takes the statements, but not their shape."""
        self._is_refused = True

    def call(self, literals: list[str]) -> Call | None:
        """A statement of this shape as a call; None if it has to be sent as it is."""
        if self._is_refused:
            return None
        for place in self._fixed:
            if literals[place] != self._literals[place]:
                self._learn(literals)
                break
        handed = [literals[place] for place in self._changing]
        if not handed or [text[0] == "'" for text in handed] != self._are_texts:
            return None
        return Call(self, self._name, self._preparing, f"EXECUTE {self._name}({', '.join(handed)})")

    def _learn(self, literals: list[str]) -> None:
        known = self._literals
        self._fixed = [place for place in self._fixed if literals[place] == known[place]]
        self._changing = [place for place in range(len(known)) if place not in self._fixed]
        self._are_texts = [known[place][0] == "'" for place in self._changing]
        if not all(self._are_texts) and self._has(_BY_NUMBER):
            self._changing, self._is_refused = [], True
            return
        filled = [*known, ""]
        for number, place in enumerate(self._changing, start=1):
            filled[place] = f"${number}"
        statement = "".join(part for pair in zip(self._pieces, filled, strict=True) for part in pair)
        types = ", ".join("unknown" if is_text else "int4" for is_text in self._are_texts)
        self._name = f"noetl_{hashlib.sha256(f'{types}: {statement}'.encode()).hexdigest()[:32]}"
        self._preparing = f"PREPARE {self._name} ({types}) AS {statement}"

    def _has(self, words: re.Pattern[str]) -> bool:
        return words.search("\n".join(self._pieces)) is not None


class Shapes:
    """The shapes that were seen last."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, Shape] = OrderedDict()

    def call(self, statement: str) -> Call | None:
        """A statement as a call of a prepared one; None if it has to be sent as it is."""
        parts = _LITERAL.split(statement)
        pieces, literals = tuple(parts[::2]), parts[1::2]
        shape = self._known.get(pieces)
        if shape is not None:
            self._known.move_to_end(pieces)
            return shape.call(literals)
        self._known[pieces] = Shape(pieces, literals)
        if len(self._known) > _MOST_SHAPES:
            self._known.popitem(last=False)
        return None
