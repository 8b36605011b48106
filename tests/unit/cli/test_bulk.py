"""What is said about a lake before everything in it is replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.cli.bulk import note_lag
from noetl.errors import IntegrityMismatch
from noetl.kernel.event import Recorded
from noetl.runtime.home import Home
from noetl.settings import Settings
from tests.unit.data.bulk.tables import golden, lake_of
from tests.unit.runtime.plant import opened


async def test_a_lake_that_is_behind_its_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_of(tmp_path / "lake", golden()[:30])
    home = Home(tmp_path / "home")
    await note_lag(lake, home, Settings())
    assert capsys.readouterr().err == ""  # there is no ledger to be behind of
    async with opened(tmp_path) as plant:
        await plant.embedded.ledger.adopt(item.event for item in golden()[:50])
    await note_lag(lake, home, Settings())
    assert capsys.readouterr().err == "the lake is 20 events behind the ledger: noetl lake sync brings them\n"


async def test_a_lake_of_another_ledger_is_refused(tmp_path: Path) -> None:
    other = [Recorded(place, item.event) for place, item in enumerate(reversed(golden()[:30]), start=1)]
    async with opened(tmp_path) as plant:
        await plant.embedded.ledger.adopt(item.event for item in golden()[:50])
    with pytest.raises(IntegrityMismatch, match="is not the one of this ledger"):
        await note_lag(lake_of(tmp_path / "lake", other), Home(tmp_path / "home"), Settings())
