"""A home with a ledger of a few executions, of two tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.data.source.log import LogSpec, url_of_home
from noetl.data.source.place import Place
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_stream
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings
from tests.unit.kernel.drafts import batch, draft

Append = Callable[..., None]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Place:
    return Place(home=str(home), directory=str(tmp_path))


@pytest.fixture
def spec(home: Path) -> LogSpec:
    return LogSpec(url_of_home(home))


@pytest.fixture
def append(home: Path) -> Append:
    """Writes so many events, as another process would."""

    def write(count: int, execution: int = 1, tenant: str = "acme", event_type: str = "step.enter") -> None:
        async def work() -> None:
            async with open_embedded(Home(home), Settings(), create=True) as embedded:
                drafts = [
                    draft(event_type, tenant_id=tenant, execution_id=execution, payload={"n": n}) for n in range(count)
                ]
                await embedded.ledger.append([batch(*drafts, stream=Stream(tenant, execution_stream(execution)))])

        asyncio.run(work())

    return write
