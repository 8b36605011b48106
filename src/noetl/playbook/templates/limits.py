"""How much one rendering may do, counted in work and not in time, so that every machine stops at the same place.

A unit of work is about one small operation: a node of the template that is evaluated, an element that is
visited, 64 characters that are copied. What a template builds costs as much as it is long, so the same count
bounds the memory that a rendering can hold on to.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

from noetl.kernel.lazy import LAZY
from noetl.playbook.templates.errors import TemplateLimit

__all__ = ["LENT", "MAX_ARGUMENTS", "MAX_BITS", "MAX_DEPTH", "USUAL", "Budget", "Limits", "survey"]

MAX_BITS = 8192  # of a whole number; Python prints no more than 4300 digits
MAX_ARGUMENTS = 256
MAX_DEPTH = 128  # of nested lists and mappings that a template hands over
LENT = 1000  # for a function of the host, whose cost is not known here
_PRINTED = 4  # text that a macro or a set block makes is printed again by whoever uses it
_CHARACTERS = 6  # 64 characters are one unit
_WALKED = 2  # four elements that are only looked at are one unit
_SMALL = frozenset({int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one rendering."""

    iterations: int = 100_000  # of all loops and macros together
    work: int = 500_000
    text: int = 1 << 20  # characters of a text that is rendered
    value: int = 1 << 24  # characters of one string inside an expression
    items: int = 1_000_000  # elements of one list
    depth: int = 24  # macros and recursive loops inside each other


USUAL = Limits()


class Budget:
    """What is left of the limits while a template renders."""

    __slots__ = ("_iterations", "_printed", "_work", "depth", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.depth = 0
        self._work = limits.work
        self._iterations = limits.iterations
        self._printed = limits.text * _PRINTED

    def spend(self, amount: int) -> None:
        self._work -= amount
        if self._work < 0:
            raise TemplateLimit(f"the template does more than {self.limits.work} units of work")

    def iterate(self, weight: int) -> None:
        """One more pass through the body of a loop or a macro, which holds so many nodes."""
        self._iterations -= 1
        if self._iterations < 0:
            raise TemplateLimit(f"the template loops more than {self.limits.iterations} times")
        self.spend(weight)

    def put_out(self, length: int) -> None:
        self._printed -= length
        if self._printed < 0:
            raise TemplateLimit(f"the template prints more than {self.limits.text} characters")

    def take_text(self, length: int) -> None:
        """Room for a string that is about to be made, or to be read through."""
        if length > self.limits.value:
            raise TemplateLimit(f"the template makes a text of more than {self.limits.value} characters")
        self.spend(1 + (max(length, 0) >> _CHARACTERS))

    def take_items(self, count: int) -> None:
        """Room for a list that is about to be made, or to be copied."""
        if count > self.limits.items:
            raise TemplateLimit(f"the template makes a list of more than {self.limits.items} elements")
        self.spend(1 + (max(count, 0) >> 3))

    def take(self, value: Any) -> None:
        """The cost of reading or making this value once, without what is inside of its elements."""
        kind = type(value)
        if kind is str:
            self.take_text(len(value))
        elif kind is list or kind is dict or kind is tuple:
            self.take_items(len(value))
        else:
            self.spend(1)

    def take_arguments(self, args: Sized, kwargs: Sized) -> None:
        """The cost of a call."""
        if len(args) + len(kwargs) > MAX_ARGUMENTS:
            raise TemplateLimit(f"a call has at most {MAX_ARGUMENTS} arguments")
        self.spend(2)

    def take_product(self, text: str, other: str) -> None:
        """The cost of looking for one text in another in a way that may compare all with all."""
        self.spend(len(text) * len(other) >> _CHARACTERS)

    def walk(self, value: Any, times: int = 1) -> bool:
        """Pay for going through a value with all that is inside, before somebody does. True if it is plain data."""
        cost, plain = survey(value, self._work << _WALKED)
        self.spend(1 + (cost * times >> _WALKED))
        return plain


def survey(value: Any, most: int) -> tuple[int, bool]:
    """The number of elements in a value (or something above `most`), and whether all of it is plain data.

    Lists that hold one another many times look small and print as gigabytes; they are counted as they would print.
    """
    total, plain = 0, True
    waiting: list[Any] = [(value,)]
    while waiting and total <= most:
        elements: Any = waiting.pop()
        if isinstance(elements, dict):
            for key in elements:
                if type(key) is not str:
                    plain = False
            elements = elements.values()
        total += len(elements) + 4
        for element in elements:
            kind = type(element)
            if kind is str:
                total += len(element) >> _CHARACTERS
            elif kind is dict or kind is list:
                waiting.append(element)
            elif kind not in _SMALL:
                plain = False
                if isinstance(element, dict | list | tuple):
                    waiting.append(element)
                elif isinstance(element, LAZY):
                    total += element.size
    return total, plain
