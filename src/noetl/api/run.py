"""A run: what became of an execution, and everything that can be asked about it afterwards."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from noetl.api.asking import Again, Outcome
from noetl.api.failures import ExecutionFailed, ExecutionTimedOut
from noetl.api.steps import STEP_EVENTS, StepLine, failed_step, steps_of
from noetl.api.summaries import Summary
from noetl.errors import InvalidInput
from noetl.kernel.vocabulary import canonical_type

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from noetl.api.state import Proof, State
    from noetl.kernel.event import Envelope
    from noetl.replay.evidence import Given
    from noetl.replay.service import Cutoff
    from noetl.runtime.logs import LogLine, LogPage

__all__ = ["Page", "Records", "Run", "StepResult"]

T = TypeVar("T")
Page = tuple[Sequence["Envelope"], "int | None"]

_PAGE = 1000


class Records(Protocol):
    """Where executions are: a home, or a server."""

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one of the coroutines below for a caller that waits."""
        ...

    async def summary(self, execution_id: int) -> Summary:
        """What has become of an execution. Raises NotFound."""
        ...

    async def wait(self, execution_id: int, seconds: float | None) -> Summary:
        """The same, once it has ended. Raises TimeoutError."""
        ...

    async def result(self, execution_id: int, step: str) -> Any:
        """The whole result of a step that has ended. Raises NotFound."""
        ...

    async def events(self, execution_id: int, after: int, limit: int, types: Collection[str]) -> Page:
        """Events after a position, and the position to go on from; None when there are no more."""
        ...

    async def logs(self, execution_id: int, step: str | None, after: int) -> LogPage:
        """What tasks printed, from a place on."""
        ...

    async def retry(self, execution_id: int, again: Again) -> Outcome:
        """Run a new execution that goes on from an earlier one, to its end."""
        ...

    async def replay(self, execution_id: int, cutoff: Cutoff) -> State:
        """The state as of a moment."""
        ...

    async def verify(self, execution_id: int) -> Proof:
        """Whether the log is what was written."""
        ...

    async def evidence(self, execution_id: int, directory: Path, sign: bool) -> Given:
        """Write evidence into a new directory."""
        ...

    async def cancel(self, execution_id: int, reason: str, cascade: bool) -> bool:
        """End an execution; False if it has ended already."""
        ...


class StepResult:
    """What a step has left behind."""

    def __init__(self, execution_id: int, name: str, value: Any) -> None:
        self.execution_id = execution_id
        self.name = name
        self.value = value

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The result as rows. Raises InvalidInput if it is no table."""
        from noetl.api.tables import rows_of

        return rows_of(self.value, self.name)

    def table(self) -> pa.Table:
        """The result as an Arrow table: `rows`, the results of a loop, or a list. Raises InvalidInput if it is none."""
        from noetl.api.tables import table_of

        return table_of(self.value, self.name)

    def df(self) -> pd.DataFrame:
        """The result as a pandas frame. Raises Unavailable without pandas."""
        from noetl.api.tables import frame_of

        return frame_of(self.value, self.name)

    def __repr__(self) -> str:
        return f"StepResult({self.name!r}, {self.value!r:.200})"


class Run:
    """An execution. What has ended is remembered; what is still running is asked for each time."""

    def __init__(self, records: Records, summary: Summary) -> None:
        self._records = records
        self._summary = summary
        self._steps: list[StepLine] | None = None

    @property
    def execution_id(self) -> int:
        """The execution's id."""
        return self._summary.execution_id

    @property
    def path(self) -> str | None:
        """The playbook's path."""
        return self._summary.path

    @property
    def status(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED or CANCELLED."""
        return self._current().status

    @property
    def ok(self) -> bool:
        """True when it is COMPLETED."""
        return self.status == "COMPLETED"

    @property
    def result(self) -> Any:
        """The result of the step that finished last."""
        return self._current().result

    @property
    def error(self) -> dict[str, Any] | None:
        """The failure that ended it: `kind`, `code`, `message`, `retryable`."""
        return self._current().error

    @property
    def duration(self) -> float | None:
        """Seconds from beginning to end; None while it runs."""
        took = self._current().duration_ms
        return None if took is None else took / 1000

    @property
    def checksum(self) -> str | None:
        """The checksum of the state, which a replay of the log must give again."""
        return self._current().checksum

    @property
    def steps(self) -> Sequence[StepLine]:
        """The steps in the order in which they began, with status and time."""
        if self._steps is not None:
            return self._steps
        lines = steps_of(self._events(STEP_EVENTS), self.execution_id)
        if self._summary.ended:
            self._steps = lines
        return lines

    @property
    def failed_step(self) -> str | None:
        """The step whose failure nobody handled."""
        return failed_step(self.steps)

    def step(self, name: str) -> StepResult:
        """The result of a step. Raises NotFound if it has none."""
        value = self._records.ask(self._records.result(self.execution_id, name))
        return StepResult(self.execution_id, name, value)

    def events(self, event_type: str | Collection[str] | None = None) -> Iterator[Envelope]:
        """The events in the order in which they were committed, page by page."""
        types = (event_type,) if isinstance(event_type, str) else event_type or ()
        return self._events(frozenset(canonical_type(one) for one in types))

    def logs(self, step: str | None = None) -> Iterator[LogLine]:
        """What tasks printed, line by line; with `step` only that step's."""
        after, more = 0, True
        while more:
            page = self._records.ask(self._records.logs(self.execution_id, step, after))
            after, more = page.after, page.more
            yield from page.lines

    def replay(self, at: int | str | datetime | None = None) -> State:
        """The state as it was at an event, a position of the ledger or a time; without one, as it is now."""
        from noetl.api.state import cutoff_of

        return self._records.ask(self._records.replay(self.execution_id, cutoff_of(at)))

    def verify(self) -> Proof:
        """Prove that the log is what was written, and that the state is what the log gives."""
        return self._records.ask(self._records.verify(self.execution_id))

    def evidence(self, directory: str | Path, *, sign: bool = False) -> Given:
        """Write evidence of it into a new directory, which proves itself, and say whether all of it holds."""
        from pathlib import Path

        return self._records.ask(self._records.evidence(self.execution_id, Path(directory), sign))

    def cancel(self, reason: str = "cancelled by a user", *, cascade: bool = True) -> bool:
        """End it, and with `cascade` those it has called; False if it has ended already."""
        return self._records.ask(self._records.cancel(self.execution_id, reason, cascade))

    def retry(
        self,
        from_step: str | None = None,
        *,
        key: str | None = None,
        timeout: float | None = None,
        check: bool = False,
        workload: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> Run:
        """Run a new execution that goes on from a step of this one, by default from the one that failed.

        Results of the steps before it are taken over; keywords replace values of the workload.
        """
        again = Again(step=from_step, workload={**(workload or {}), **values}, key=key, timeout=timeout)
        outcome = self._records.ask(self._records.retry(self.execution_id, again))
        return concluded(Run(self._records, outcome.summary), check, timeout if outcome.timed_out else None)

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end. Raises TimeoutError; the execution goes on all the same."""
        if not self._summary.ended:
            self._summary = self._records.ask(self._records.wait(self.execution_id, timeout))
        return self

    def raise_for_status(self) -> Run:
        """Raise ExecutionFailed if it FAILED or was CANCELLED; else give the run itself."""
        if self.status in ("FAILED", "CANCELLED"):
            raise ExecutionFailed(self)
        return self

    def __repr__(self) -> str:
        return f"Run({self.execution_id}, {self.path}, {self._summary.status})"

    def _repr_html_(self) -> str:
        from noetl.api.card import card

        return card(self._current(), self.steps)

    def _current(self) -> Summary:
        if not self._summary.ended:
            self._summary = self._records.ask(self._records.summary(self.execution_id))
        return self._summary

    def _events(self, types: Collection[str]) -> Iterator[Envelope]:
        after: int | None = 0
        while after is not None:
            page, after = self._records.ask(self._records.events(self.execution_id, after, _PAGE, types))
            yield from page


def as_execution_id(value: int | str) -> int:
    """An execution id as a number or as text."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 63:
        raise InvalidInput(f"{value!r} is not an execution id", hint="ids are decimal numbers")
    return value


def concluded(run: Run, check: bool, timed_out_after: float | None = None) -> Run:
    """A run as its caller wants it: with `check`, one that did not complete raises."""
    if timed_out_after is not None:
        raise ExecutionTimedOut(run, timed_out_after)
    return run.raise_for_status() if check else run
