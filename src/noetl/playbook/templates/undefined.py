"""What a name that is not there turns into: DSL.md 8, rule 6.

An undefined value remembers what was read from what. That is how a method is called without ever being a value:
`text.upper` is undefined, and calling it looks `upper` up in the table for texts. So a mapping without the key
`items` still has an undefined `.items`, which `default` replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import jinja2
from jinja2.utils import missing

from noetl.playbook.templates.errors import TemplateUndefined

__all__ = ["Lenient", "Strict"]


_MAX_PARTS = 16


class Lenient(jinja2.Undefined):
    """False, empty in text, empty when iterated, and undefined again in whatever is read from it."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        return self._undefined_hint or f"'{self.path()}' is undefined"

    def path(self) -> str:
        """The name as the template wrote it, as far back as nothing was there."""
        parts, here = list[str](), self
        while len(parts) < _MAX_PARTS:
            parts.append(str(here._undefined_name))
            if not isinstance(here._undefined_obj, Lenient):
                break
            here = here._undefined_obj
        return ".".join(reversed(parts))

    def target(self) -> tuple[Any, str] | None:
        """What a call would be a method of, and the name of the method."""
        if self._undefined_obj is missing or isinstance(self._undefined_obj, Lenient):
            return None
        return self._undefined_obj, str(self._undefined_name)

    def refuse(self) -> NoReturn:
        raise TemplateUndefined(self._undefined_message)

    def filtered(self) -> None:
        """Called where the value is printed, iterated or filtered: nothing to say here."""

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, jinja2.Undefined)


class Strict(Lenient):
    """May be tested and replaced by a default, and nothing else."""

    __slots__ = ()

    def filtered(self) -> None:
        self.refuse()

    def __str__(self) -> str:  # noqa: PLE0307 - it gives nothing
        self.refuse()

    def __len__(self) -> int:  # noqa: PLE0303
        self.refuse()

    def __iter__(self) -> Iterator[Any]:
        self.refuse()

    __hash__ = Lenient.__hash__
