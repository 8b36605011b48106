"""noop: does nothing, and says so."""

from __future__ import annotations

from collections.abc import Mapping

from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, ok

__all__ = ["NoopTool"]


class NoopTool:
    """Returns `result` if the task has one, else `{status: ok}`."""

    kind = "noop"
    rendering: Mapping[str, Rendering] = {}
    required: tuple[tuple[str, ...], ...] = ()

    def side_effecting(self, fields: Json) -> bool:
        """Never."""
        return False

    async def run(self, call: Call) -> Outcome:
        """Answer at once."""
        return ok(call.fields.get("result", {"status": "ok"}))

    async def close(self) -> None:
        """Nothing to let go of."""
