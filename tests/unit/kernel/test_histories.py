"""An event that comes from elsewhere, and what a ledger has in its place."""

from __future__ import annotations

import pytest

from noetl.errors import IntegrityMismatch
from noetl.kernel.histories import is_the_same
from tests.unit.kernel.drafts import TELEMETRY, envelope


def test_the_very_event_is_there() -> None:
    event = envelope()
    assert is_the_same(event, event.envelope_checksum)


@pytest.mark.parametrize("found", ["f" * 64, None])
def test_another_one_in_its_place_is_a_split_history(found: str | None) -> None:
    with pytest.raises(IntegrityMismatch, match="the two histories differ") as refused:
        is_the_same(envelope(), found)
    assert refused.value.hint == "import into another --home to compare them"


def test_a_sparse_stream_may_not_have_it_yet() -> None:
    assert not is_the_same(envelope(stream_id=TELEMETRY.stream_id), None)
