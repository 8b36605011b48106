"""How far behind a lake is, and up to where it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.bulk import Bounds
from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import Lake
from noetl.data.lake.writing import append as append_to_lake
from noetl.data.source.events import Span, batches
from noetl.data.source.log import LogSpec, open_log, url_of_home
from noetl.errors import InvalidInput, NotFound
from noetl.replay.service import Cutoff
from noetl.runtime.history import bounds_of, lag_of
from noetl.runtime.home import Home
from noetl.settings import Settings
from tests.unit.data.source.conftest import Append, append, home  # noqa: F401 - a ledger in a home

NOW = 1_800_000_000_000_000


@pytest.fixture
def lake(home: Path, append: Append) -> Lake:  # noqa: F811 - the fixtures above
    """A lake with the first four of six events."""
    append(6, execution=7)
    lake = Lake(home / "lake")
    with open_log(LogSpec(url_of_home(home))) as log:
        append_to_lake(lake, list(batches(log, SCHEMA, (), Span(0, 4))), now=NOW)
    return lake


def test_the_lag_is_what_the_ledger_has_more(home: Path, lake: Lake) -> None:  # noqa: F811
    assert lag_of(Home(home), Settings(), lake) == 2
    assert lag_of(Home(home), Settings(), lake, Bounds(position=3)) == 0
    assert lag_of(Home(home), Settings(), lake, Bounds(until="2020-01-01T00:00:00.000000Z")) == 0


def test_a_lake_without_its_ledger_answers_all_the_same(tmp_path: Path, lake: Lake) -> None:
    assert lag_of(Home(tmp_path / "elsewhere"), Settings(), lake) is None


def test_without_a_lake_there_is_nothing_to_ask(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no lake at"):
        lag_of(Home(tmp_path), Settings(), Lake(tmp_path / "lake"))


def test_a_moment_is_a_position_or_a_time_that_has_come() -> None:
    assert bounds_of(Cutoff(position=5)) == Bounds(position=5)
    assert bounds_of(Cutoff(time=0)) == Bounds(until="1970-01-01T00:00:00.000000Z")
    with pytest.raises(InvalidInput, match="is in the future"):
        bounds_of(Cutoff(time=32_000_000_000_000_000))
    with pytest.raises(InvalidInput, match="a moment of one execution"):
        bounds_of(Cutoff(event_id=5))
