"""Which files of a lake a moment needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.bulk import Bounds
from noetl.data.history.past import Past
from noetl.data.lake.layout import batch_of
from noetl.data.lake.log import Lake
from noetl.data.lake.writing import append
from noetl.errors import InvalidInput
from tests.unit.data.lake.conftest import Record, lake, record  # noqa: F401 - a lake, and events for it

NOW = 1_800_000_000_000_000


@pytest.fixture
def filled(lake: Lake, record: Record) -> Lake:  # noqa: F811 - the fixtures above
    append(lake, [batch_of(record(10))], now=NOW)
    append(lake, [batch_of(record(10, tenant="other"))], now=NOW)
    append(lake, [batch_of(record(10, days=1))], now=NOW)
    return lake


def test_files_of_other_tenants_days_and_positions_are_passed_over(filled: Lake) -> None:
    def found(after: int = 0, tenant: str = "*", bounds: Bounds | None = None) -> set[tuple[str, str]]:
        past = Past.of(filled, tenant, bounds or Bounds())
        return {(file.tenant, file.date) for file in past.files(after)}

    first, second, third = ("acme", "2026-03-02"), ("other", "2026-03-02"), ("acme", "2026-03-03")
    assert found() == {first, second, third}
    assert found(tenant="acme") == {first, third}
    assert found(after=10) == {second, third}
    assert found(bounds=Bounds(position=15)) == {first, second}
    assert found(bounds=Bounds(until="2026-03-02T23:00:00.000000Z")) == {first, second}
    assert found(tenant="nobody") == set()


def test_what_is_committed_later_is_not_seen(filled: Lake, record: Record) -> None:  # noqa: F811
    past = Past.of(filled)
    append(filled, [batch_of(record(10))], now=NOW)
    assert max(file.last_position for file in past.files()) == 30
    assert filled.head() == 40


@pytest.mark.parametrize("position", [0, 31])
def test_a_position_that_is_not_there_is_refused(filled: Lake, position: int) -> None:
    with pytest.raises(InvalidInput, match=f"position {position} is not in the lake, which has 1 to 30"):
        Past.of(filled, bounds=Bounds(position=position))


def test_an_empty_lake_has_no_files(tmp_path: Path) -> None:
    assert Past.of(Lake(tmp_path / "none")).files() == []
