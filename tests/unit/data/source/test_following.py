"""A stream over the ledger: every position once, whatever happens between two triggers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import cast

import pytest

from noetl.data.source.events import Span
from noetl.data.source.following import Following, Offset
from noetl.data.source.log import LogSpec, Term
from noetl.data.source.options import EventOptions
from noetl.errors import Corruption, IntegrityMismatch, InvalidInput, NotFound
from tests.unit.data.source.conftest import Append

TENANT = (Term("tenant_id", "=", "acme"),)


def stream(spec: LogSpec, terms: tuple[Term, ...] = TENANT, **options: int | None) -> Following:
    return Following(spec, terms, EventOptions(**options))  # type: ignore[arg-type]  # numbers


def restarted(offset: Offset) -> Offset:
    """As it comes back from a checkpoint."""
    return cast(Offset, json.loads(json.dumps(offset)))


def test_triggers_go_from_where_the_last_one_ended_to_the_head(spec: LogSpec, append: Append) -> None:
    append(5)
    following = stream(spec)
    start = following.initial()
    assert start == {"position": 0, "checksum": None}
    end = following.latest(start, is_limited=True)
    assert end["position"] == 5
    assert following.spans(start, end) == [Span(0, 5)]
    assert following.latest(end, is_limited=True) == end
    append(2)
    after = stream(spec).latest(restarted(end), is_limited=True)
    assert stream(spec).spans(restarted(end), restarted(after)) == [Span(5, 7)]


def test_limits_are_in_rows_and_in_positions(spec: LogSpec, append: Append) -> None:
    for _ in range(3):
        append(1, event_type="a.b")
        append(4, event_type="c.d")
    some = (*TENANT, Term("event_type", "=", "a.b"))
    start = stream(spec).initial()
    assert stream(spec, rows_per_trigger=4).latest(start, is_limited=True)["position"] == 4
    assert stream(spec, some, rows_per_trigger=2).latest(start, is_limited=True)["position"] == 6
    assert stream(spec, some, rows_per_trigger=9).latest(start, is_limited=True)["position"] == 15
    assert stream(spec, some, positions_per_trigger=7).latest(start, is_limited=True)["position"] == 7
    both = stream(spec, some, rows_per_trigger=2, positions_per_trigger=3)
    assert both.latest(start, is_limited=True)["position"] == 3
    assert both.latest(start, is_limited=False)["position"] == 15


def test_what_is_available_now_ends_where_it_ended_when_the_stream_began(spec: LogSpec, append: Append) -> None:
    append(3)
    following = stream(spec, positions_per_trigger=2)
    following.stop_at_head()
    append(3)
    first = following.latest(following.initial(), is_limited=True)
    second = following.latest(first, is_limited=True)
    assert [first["position"], second["position"]] == [2, 3]
    assert following.latest(second, is_limited=True) == second
    assert following.head()["position"] == 6


def test_a_stream_begins_where_it_is_told_to(spec: LogSpec, append: Append) -> None:
    append(4)
    assert stream(spec, first=3).initial()["position"] == 2
    assert stream(spec, first=5).initial()["position"] == 4
    assert stream(spec, first=None).initial()["position"] == 4
    with pytest.raises(InvalidInput, match="fromPosition 6 is after the end of the ledger, which is at 4"):
        stream(spec, first=6).initial()
    with pytest.raises(InvalidInput, match="has no toPosition"):
        stream(spec, last=3)


def test_a_ledger_that_was_put_back_is_noticed(spec: LogSpec, append: Append, home: Path, tmp_path: Path) -> None:
    append(3)
    shutil.copytree(home, tmp_path / "old")
    append(3)
    following = stream(spec)
    end = following.latest(following.initial(), is_limited=False)
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "old", home)
    with pytest.raises(IntegrityMismatch, match="ends at position 3, and this stream has read up to 6"):
        stream(spec).latest(end, is_limited=False)
    with pytest.raises(IntegrityMismatch, match="ends at position 3"):
        stream(spec).spans(following.initial(), end)
    append(9, execution=5)
    with pytest.raises(IntegrityMismatch, match="at position 6 is not the one that this stream has read"):
        stream(spec).latest(end, is_limited=False)


def test_what_is_no_ledger_and_no_offset(spec: LogSpec, append: Append) -> None:
    with pytest.raises(NotFound, match="there is no ledger at"):
        stream(spec).initial()
    append(1)
    with pytest.raises(Corruption, match="not an offset of a noetl stream"):
        stream(spec).latest(cast(Offset, {"offset": 3}), is_limited=False)
    with pytest.raises(InvalidInput, match="at mysql://"):
        stream(LogSpec("mysql://somewhere/db")).initial()
