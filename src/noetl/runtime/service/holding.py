"""Holding executions: while this process works on one, others wait for it."""

from __future__ import annotations

from pathlib import Path

from noetl.errors import Unavailable
from noetl.runtime.embedded.hold import Held, name_of, take

__all__ = ["Holdings", "Unlocked"]


class Holdings:
    """The executions of a tenant that this process has to itself. The system lets go of them if it is killed."""

    def __init__(self, directory: Path, tenant_id: str, most: int) -> None:
        self._directory = directory
        self._tenant_id = tenant_id
        self._most = most
        self._held: dict[int, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, execution_id: int) -> bool:
        return execution_id in self._held

    def all(self) -> list[int]:
        """Their ids."""
        return list(self._held)

    def check_room(self) -> None:
        """Raises Unavailable when as many are held as there may be. Each costs memory."""
        if len(self._held) >= self._most:
            raise Unavailable(
                f"{len(self._held)} executions are under way, and this server takes no more",
                hint="try again when some have ended",
            )

    def take(self, execution_id: int) -> bool:
        """Hold an execution; False if another process does."""
        if execution_id in self._held:
            return True
        held = take(self._directory, name_of(self._tenant_id, execution_id))
        if held is None:
            return False
        self._held[execution_id] = held
        return True

    def release(self, execution_id: int) -> None:
        """It has ended, or somebody else may go on with it."""
        held = self._held.pop(execution_id, None)
        if held is not None:
            held.release()

    def close(self) -> None:
        """Let go of everything, ended or not, for the next process."""
        while self._held:
            self._held.popitem()[1].release()


class Unlocked(Holdings):
    """Executions in a log that several servers share: nobody has one to itself.

    Any of them may drive any execution, because versions and leases decide. So nothing is held, and an execution
    costs no memory here while it waits.
    """

    def __init__(self) -> None:
        super().__init__(Path(), "", 0)

    def check_room(self) -> None:
        """There is always room."""

    def take(self, execution_id: int) -> bool:
        """Nobody is in the way."""
        return True
