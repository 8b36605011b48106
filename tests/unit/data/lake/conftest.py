"""Events to fill a lake with, as a ledger would have recorded them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from noetl.data.lake.log import Lake
from noetl.kernel.event import Recorded
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_stream
from tests.scribe import START, Scribe
from tests.unit.data.source.conftest import append, home  # noqa: F401 - a ledger in a home
from tests.unit.kernel.drafts import draft

Record = Callable[..., Sequence[Recorded]]
DAY = 86_400_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def record() -> Record:
    """Appends events of some executions, one of each in turn, and gives what it has appended."""
    scribe, now = Scribe(), START

    def write(count: int, executions: Sequence[int] = (1, 2, 3), tenant: str = "acme", days: int = 0) -> list[Recorded]:
        nonlocal now
        now += days * DAY
        scribe.now = now
        before = len(scribe.written)
        for n in range(count):
            execution = executions[n % len(executions)]
            scribe.write(
                Stream(tenant, execution_stream(execution)),
                draft("step.enter", tenant_id=tenant, execution_id=execution, payload={"n": n, "word": "köln"}),
            )
        return [Recorded(position, event) for position, event in enumerate(scribe.written, 1)][before:]

    return write
