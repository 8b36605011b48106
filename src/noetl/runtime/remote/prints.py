"""What tasks print on a worker, on its way to the server: with a heartbeat or the report, and not without end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.runtime.notices import Listener, Notice

__all__ = ["MOST_BYTES", "Prints", "keep_prints"]

MOST_BYTES = 256 << 10
"""How much of what a command prints goes along at a time. The rest is in the logs of the worker's own home."""
_LINE_BYTES = 64
"""What a line costs beside its text."""


class Prints:
    """Keeps what commands have printed until somebody asks for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[int, list[Notice]] = {}
        self._bytes: dict[int, int] = {}

    def hear(self, notice: Notice) -> None:
        """Keep what was printed; beyond the limit only that there was more."""
        if notice.what != "log" or self._bytes.get(notice.command_id, 0) > MOST_BYTES:
            return
        kept = self._kept.setdefault(notice.command_id, [])
        size = self._bytes.get(notice.command_id, 0) + len(notice.text) + _LINE_BYTES
        self._bytes[notice.command_id] = size
        if size > MOST_BYTES:
            notice = msgspec.structs.replace(notice, text="", truncated=True)
        kept.append(msgspec.structs.replace(notice, at=format_time(self._clock.now())))

    def take(self, command_id: int) -> list[Notice]:
        """What a command has printed since the last time."""
        self._bytes.pop(command_id, None)
        return self._kept.pop(command_id, [])

    def put_back(self, command_id: int, notices: Sequence[Notice]) -> None:
        """They could not be told: the next time they come first."""
        kept = [*notices, *self._kept.get(command_id, [])]
        self._kept[command_id] = kept
        self._bytes[command_id] = sum(len(one.text) + _LINE_BYTES for one in kept)


def keep_prints(notices: Sequence[Notice], keep: Listener, execution_id: int, command_id: int) -> None:
    """Write down what a worker has sent: as lines of the command that it has, whatever they say they are."""
    size = 0
    for notice in notices:
        size += len(notice.text) + _LINE_BYTES
        if size > 2 * MOST_BYTES:
            return
        own = msgspec.structs.replace(notice, what="log", execution_id=execution_id, command_id=command_id)
        keep(own)
