"""What a caller can be told of an execution that did not go well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.api.run import Run

__all__ = ["ExecutionFailed", "ExecutionTimedOut", "PlaybookWarning"]


class ExecutionFailed(NoetlError):
    """An execution ended FAILED or CANCELLED. `step` and `error` say where and why, `run` has everything else."""

    def __init__(self, run: Run) -> None:
        error = run.error or {}
        self.run = run
        self.execution_id = run.execution_id
        self.status = run.status
        self.step: str | None = run.failed_step
        self.error: dict[str, Any] = error
        where = f" at step '{self.step}'" if self.step else ""
        why = f": {error.get('code', 'UNKNOWN')}: {error.get('message', '')}" if error else ""
        super().__init__(f"execution {run.execution_id} of {run.path} {self.status.lower()}{where}{why}")


class ExecutionTimedOut(NoetlError, TimeoutError):
    """An execution took longer than its caller allowed, and was cancelled."""

    def __init__(self, run: Run, seconds: float) -> None:
        self.run = run
        self.execution_id = run.execution_id
        super().__init__(
            f"execution {run.execution_id} of {run.path} took longer than {seconds:g} s and was cancelled",
            hint="allow more with timeout=, or find the slow step with run.steps",
        )


class PlaybookWarning(UserWarning):
    """Something in a document that is doubtful, though it runs."""
