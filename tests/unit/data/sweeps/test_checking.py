"""What the tasks of a verification do, done here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noetl.data.sweeps import checking
from tests.unit.data.sweeps.test_tasks import away, place, run, spec_of

__all__ = ["away", "place"]


def test_every_object_that_an_event_needs_is_told_with_its_place(place: Path) -> None:
    needs = run(checking.need_objects, spec_of(place), {"after": 0, "to": 3}, {"after": 3, "to": 100})
    assert {need["key"].partition("/")[0] for need in needs} == {"default", "noetl"}
    assert [need["position"] for need in needs] == sorted(need["position"] for need in needs)
    assert run(checking.need_objects, spec_of(place), {"after": 0, "to": 3}) == needs[:1]


def test_what_an_archived_event_needs_comes_with_the_rank_of_its_root(tmp_path: Path, away: dict[str, Any]) -> None:
    needs = run(checking.need_archived, spec_of(tmp_path), {**away, "rank": 3})
    assert {need["rank"] for need in needs} == {3}
    assert {need["key"].partition("/")[0] for need in needs} == {"default", "noetl"}
    assert run(checking.need_objects, spec_of(tmp_path), {"after": 0, "to": 7}) == []


@pytest.mark.parametrize(("content", "condition"), [(None, "missing"), (b"", "damaged"), (b"other", "damaged")])
def test_what_is_not_as_the_log_says_has_a_condition(place: Path, content: bytes | None, condition: str) -> None:
    found = run(checking.need_objects, spec_of(place), {"after": 0, "to": 100})
    needs = list({need["key"]: need for need in reversed(found)}.values())
    sound = run(checking.check_objects, spec_of(place), *needs)
    assert [(row["checked"], row["condition"]) for row in sound] == [(1, None), (1, None)]
    assert sum(row["sound_bytes"] for row in sound) == sum(need["bytes"] for need in needs)
    file = place / "home" / "payloads" / needs[0]["key"]
    file.unlink() if content is None else file.write_bytes(content)
    [unsound] = [row for row in run(checking.check_objects, spec_of(place), *needs) if row["condition"]]
    assert (unsound["key"], unsound["position"]) == (needs[0]["key"], needs[0]["position"])
    assert unsound["condition"] == condition
