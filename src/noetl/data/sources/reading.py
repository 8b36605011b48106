"""One task while it reads its inputs: what it may use, what it has left out, and what is to be closed at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from noetl.data.means import Means
from noetl.errors import InvalidInput
from noetl.payloads.resolver import Caller, Resolver
from noetl.tools.base import Call

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CHOICES", "Frame", "Reading", "choices_of", "mapping_of"]

Frame: TypeAlias = "Callable[[SparkSession], DataFrame]"
"""Makes the DataFrame, in the thread that may talk to Spark."""

CHOICES = ("on_missing", "on_drift", "on_error")
"""What a source of files does about none, about other columns, and about what cannot be read: fail or skip."""


class Reading:
    """The inputs of one call. `folder` is its own, for what has to lie on a disk while it runs."""

    def __init__(self, call: Call, means: Means, folder: Path) -> None:
        self.call = call
        self.means = means
        self.folder = folder
        self.skipped: list[str] = []
        self.ends = contextlib.ExitStack()
        self._places = 0

    @property
    def resolver(self) -> Resolver:
        """Follows addresses. Raises InvalidInput where the task was given no way to."""
        if self.call.resolver is None:
            raise InvalidInput("addresses cannot be followed here", hint="give a path")
        return self.call.resolver

    def caller(self) -> Caller:
        """Whom addresses are followed for."""
        return self.call.caller(self.call.auth)

    def place(self, name: str) -> Path:
        """A new directory of the task's own."""
        self._places += 1
        path = self.folder / f"{self._places:03d}-{name}"
        path.mkdir(parents=True)
        return path

    def auth(self, alias: Any, what: str) -> Any:
        """The credential that an input or output uses: the task's own, or of several the one of this alias."""
        given = self.call.auth
        if alias is None:
            return given
        if not isinstance(given, dict) or not isinstance(given.get(str(alias)), dict):
            raise InvalidInput(
                f"{what} uses the credential '{alias}', and the task has none of that alias",
                hint=f"add it to the task: auth: {{{alias}: {{key: name_of_credential}}}}",
            )
        return given[str(alias)]


def choices_of(options: dict[str, Any]) -> dict[str, str]:
    """The choices of a source of files. Raises InvalidInput."""
    found = {name: str(options.get(name, "fail")) for name in CHOICES}
    for name, value in found.items():
        if value not in ("fail", "skip"):
            raise InvalidInput(f"{name}: '{value}' must be fail or skip")
    return found


def mapping_of(value: Any, what: str, need: tuple[str, ...] = ()) -> dict[str, Any]:
    """The options of a source. Of the names in `need` one must be there. Raises InvalidInput."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a mapping", hint=f"{what}: {{{need[0]}: ...}}" if need else None)
    if need and not any(value.get(name) for name in need):
        raise InvalidInput(f"{what} needs {' or '.join(need)}")
    return value
