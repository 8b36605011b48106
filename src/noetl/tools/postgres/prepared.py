"""What a session has prepared, and what has to come before a call of it."""

from __future__ import annotations

from collections.abc import Iterable

from noetl.tools.postgres.shapes import Call

__all__ = ["Prepared"]

_MOST = 64
_MOST_USES = 1000
"""After so many uses a statement is prepared anew: tables grow by them, and the plan was made for small ones."""


class Prepared:
    """The prepared statements of one session: how often each may still be used."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._is_known = True

    def before(self, calls: Iterable[Call | None]) -> list[str]:
        """The statements that have to come before these calls, in the same message."""
        if len(self._left) > _MOST:
            self.doubt()
        said: list[str] = []
        for call in calls:
            if call is not None:
                if not self._left.get(call.name):
                    said += self._preparing(call)
                self._left[call.name] -= 1
        return said

    def doubt(self) -> None:
        """A message has failed, and what it has prepared may be there or not."""
        self._left.clear()
        self._is_known = False

    def forget(self) -> None:
        """The session has nothing any more."""
        self._left.clear()
        self._is_known = True

    def _preparing(self, call: Call) -> list[str]:
        said = [] if self._is_known else ["DEALLOCATE ALL"]
        self._is_known = True
        if call.name in self._left:
            said.append(f"DEALLOCATE {call.name}")
        self._left[call.name] = _MOST_USES
        return [*said, call.preparing]
