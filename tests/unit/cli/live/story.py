"""A run told event by event, for those who show it."""

from __future__ import annotations

from typing import Any

from noetl.cli.live.board import Board, EndedStep
from noetl.cli.live.drawing import draw
from noetl.kernel.event import Draft, Json
from noetl.kernel.stamp import Stream
from noetl.runtime.notices import Notice
from tests.scribe import Scribe

ROOT, CHILD = 286_000_000_000_000_001, 286_000_000_000_000_002


class Story:
    """A board, a clock that moves when told to, and a scribe that stamps what happens."""

    def __init__(self) -> None:
        self.now = 100.0
        self.board = Board(lambda: self.now)
        self._scribe = Scribe()

    def event(
        self, event_type: str, step: str | None = None, *, status: str | None = None, execution: int = ROOT,
        parent: int | None = None, **payload: Any,
    ) -> EndedStep | None:  # fmt: skip
        draft = Draft(
            event_type=event_type, tenant_id="default", organization_id="default", project_id="default",
            principal="p", producer="noetl://tenant/default", execution_id=execution, parent_execution_id=parent,
            node_name=step, status=status, payload=payload,
        )  # fmt: skip
        (written,) = self._scribe.write(Stream("default", f"execution/{execution}"), draft)
        return self.board.apply(written)

    def begin(self, execution: int = ROOT, *, path: str = "team/orders", parent: int | None = None) -> None:
        self.event("playbook.initialized", path=path, execution=execution, parent=parent)

    def issue(self, step: str, kind: str = "python", **payload: Any) -> None:
        self.event("command.issued", step, kind=kind, **payload)

    def exit(self, step: str, status: str = "COMPLETED", **more: Any) -> EndedStep:
        ended = self.event("step.exit", step, status=status, **more)
        assert ended is not None
        return ended

    def run(self, step: str, status: str = "COMPLETED") -> EndedStep:
        self.issue(step)
        return self.exit(step, status)

    def run_in_child(self, step: str) -> EndedStep:
        self.event("command.issued", step, kind="python", execution=CHILD, parent=ROOT)
        return self.exit(step, execution=CHILD, parent=ROOT)

    def notice(self, what: Any, step: str, execution: int = ROOT, **more: Any) -> None:
        own: Json = {"command_id": 1, "task": f"{step}_task", **more}
        self.board.hear(Notice(execution_id=execution, step=step, what=what, **own))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self._scribe.now += round(seconds * 1_000_000)

    def drawn(self, *, width: int = 100, height: int = 20, over: bool = False) -> list[str]:
        lines = draw(self.board, width=width, height=height, now=self.now, over=over)
        return ["".join(piece.text for piece in line) for line in lines]
