from __future__ import annotations

import hashlib

import pytest

from noetl.errors import InvalidEvent, StreamSealed, VersionConflict
from noetl.kernel.chain import extend, genesis
from noetl.kernel.tail import Tail
from tests.unit.kernel.drafts import STAGE, STREAM

AT = "2026-03-02T08:00:00.000000Z"
CHECKSUM = hashlib.sha256(b"event")


@pytest.mark.parametrize(("stream", "versions"), [(STREAM, [1, 2]), (STAGE, [500, 501])])
def test_a_version_is_counted_or_is_the_event_id(stream: object, versions: list[int]) -> None:
    tail = Tail(STREAM if stream is STREAM else STAGE, None)
    found = []
    for event_id in (500, 501):
        tail.push(event_id, CHECKSUM.digest(), AT)
        found.append(tail.version)
    assert found == versions


def test_pushing_extends_the_chain() -> None:
    tail = Tail(STREAM, None)
    assert tail.push(500, CHECKSUM.digest(), AT) == extend(genesis(STREAM.stream_id), CHECKSUM.hexdigest())
    assert tail.head().chain_hash == extend(genesis(STREAM.stream_id), CHECKSUM.hexdigest())


def test_a_tail_goes_on_from_its_head() -> None:
    whole, part = Tail(STREAM, None), Tail(STREAM, None)
    for tail in (whole, part):
        tail.push(500, CHECKSUM.digest(), AT)
    resumed = Tail(STREAM, part.head())
    for tail in (whole, resumed):
        tail.push(501, CHECKSUM.digest(), AT)
    assert resumed.head() == whole.head()


def test_the_first_event_follows_none() -> None:
    tail = Tail(STREAM, None)
    assert tail.previous is None
    tail.push(500, CHECKSUM.digest(), AT)
    assert tail.previous == 500


def test_an_untouched_tail_has_not_moved() -> None:
    tail = Tail(STAGE, None)
    assert not tail.moved
    tail.seal(0, STREAM.stream_id, AT)
    assert tail.moved


def test_nothing_is_pushed_after_the_seal() -> None:
    tail = Tail(STAGE, None)
    tail.seal(0, STREAM.stream_id, AT)
    with pytest.raises(StreamSealed):
        tail.push(500, CHECKSUM.digest(), AT)


def test_a_stale_count_is_a_conflict() -> None:
    with pytest.raises(VersionConflict):
        Tail(STAGE, None).seal(1, STREAM.stream_id, AT)


def test_a_dense_stream_is_never_sealed() -> None:
    with pytest.raises(InvalidEvent):
        Tail(STREAM, None).seal(0, STREAM.stream_id, AT)
