"""Homes to try things on: built once, copied for each test that changes something."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch, Stream
from tests.e2e.cli import CORPUS, FRAMES_LOG, ORDERS_LOG, Home
from tests.e2e.scenes import Scene
from tests.scribe import Scribe, line_of

EVENTS = 8_000
_PER_APPEND = 500


@dataclass(frozen=True)
class LargeLog:
    """A log of one long execution."""

    file: Path
    execution: str
    events: int


@pytest.fixture(scope="session")
def two_logs(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the orders log and the frames log, in this order. Not to be changed."""
    home = Home(tmp_path_factory.mktemp("two_logs") / "home")
    for log in (ORDERS_LOG, FRAMES_LOG):
        home.json("import", log)
    return home


@pytest.fixture(scope="session")
def every_log(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with every log there is. Not to be changed."""
    home = Home(tmp_path_factory.mktemp("every_log") / "home")
    for log in [ORDERS_LOG, *sorted(CORPUS.glob("*.jsonl"))]:
        home.json("import", log)
    return home


@pytest.fixture
def home(two_logs: Home, tmp_path: Path) -> Home:
    """A copy of the two logs' home, to be changed at will."""
    return two_logs.copy(tmp_path / "home")


@pytest.fixture
def new_home(tmp_path: Path) -> Home:
    """A home that is not there yet."""
    return Home(tmp_path / "new")


@pytest.fixture
def scene(new_home: Home, tmp_path: Path) -> Scene:
    """A place to run playbooks whose steps can be held."""
    return Scene(new_home, tmp_path)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> LargeLog:
    """A log long enough that an import of it can be interrupted."""
    scribe = Scribe()
    execution_id = 286_000_000_000_000_000
    stream = Stream("acme", f"execution/{execution_id}")
    common = {
        "tenant_id": "acme",
        "organization_id": "retail",
        "project_id": "sales",
        "principal": "user:ada@acme.example",
        "producer": "noetl://tenant/acme/org/retail/region/eu-west-1/zone/b/cluster/main/node/node-3",
        "execution_id": execution_id,
    }
    first = Draft(event_type="playbook.initialized", payload={"path": "sales/long"}, **common)  # type: ignore[arg-type]  # one mapping for fields of several types
    done = [
        Draft(event_type="model.checkpointed", payload={"loss": number / 7, "step": number}, **common)  # type: ignore[arg-type]
        for number in range(1, EVENTS)
    ]
    drafts = [first, *done]
    file = tmp_path_factory.mktemp("large") / "large.jsonl"
    with file.open("wb") as log:
        for start in range(0, EVENTS, _PER_APPEND):
            scribe.now += 1_000_000
            written = scribe.append(Batch(stream=stream, drafts=drafts[start : start + _PER_APPEND]))
            log.writelines(line_of(event) + b"\n" for event in written)
    return LargeLog(file, str(execution_id), EVENTS)


@pytest.fixture(scope="session")
def large_home(large: LargeLog, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home into which the large log was imported undisturbed. Not to be changed."""
    home = Home(tmp_path_factory.mktemp("large_home") / "home")
    home.json("import", large.file)
    return home
