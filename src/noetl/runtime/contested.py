"""Which executions are driven by several processes at once, as far as conflicts have shown it."""

from __future__ import annotations

from collections import OrderedDict

from noetl.observe import metrics

__all__ = ["Contested"]

_REMEMBERED = 256


class Contested:
    """The last few executions in whose log another process has been faster than this one."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, execution_id: int) -> bool:
        return execution_id in self._known

    def note(self, execution_id: int) -> None:
        """A decision about it was made in vain."""
        metrics.count("noetl_driver_conflicts_total")
        self._known[execution_id] = None
        self._known.move_to_end(execution_id)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
