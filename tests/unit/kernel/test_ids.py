from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.errors import InvalidInput
from noetl.kernel.ids import EPOCH_MS, MAX_ID, MAX_NODE, Snowflake, compose, node_of, unix_ms

NOW = EPOCH_MS + 68_000_000_000
SEQUENCES = 4096


@pytest.fixture
def ids() -> Snowflake:
    return Snowflake(7)


def test_an_id_is_time_node_and_sequence() -> None:
    assert compose(EPOCH_MS + 1, 2, 3) == (1 << 22) | (2 << 12) | 3


def test_the_epoch_is_the_first_of_january_2024() -> None:
    assert compose(EPOCH_MS, 0, 0) == 0
    assert unix_ms(0) == 1_704_067_200_000


def test_the_largest_parts_fill_63_bits() -> None:
    assert compose(EPOCH_MS + (1 << 41) - 1, MAX_NODE, SEQUENCES - 1) == MAX_ID


def test_an_id_tells_its_time_and_node(ids: Snowflake) -> None:
    minted = ids.next(NOW)
    assert (unix_ms(minted), node_of(minted)) == (NOW, 7)


@settings(deadline=None)
@given(st.lists(st.integers(NOW - 5000, NOW + 5000), min_size=2, max_size=200))
def test_ids_increase_whatever_the_clock_does(clock: list[int]) -> None:
    ids = Snowflake(7)
    minted = [ids.next(now) for now in clock]
    assert all(earlier < later for earlier, later in pairwise(minted))
    assert all(unix_ms(one) >= now for one, now in zip(minted, clock, strict=True))
    assert {node_of(one) for one in minted} == {7}


def test_a_clock_that_steps_back_is_ignored_until_it_has_caught_up(ids: Snowflake) -> None:
    before = ids.next(NOW)
    assert ids.next(NOW - 60_000) == before + 1
    assert ids.next(NOW + 1) == compose(NOW + 1, 7, 0)


def test_a_used_up_sequence_borrows_the_next_millisecond(ids: Snowflake) -> None:
    minted = [ids.next(NOW) for _ in range(2 * SEQUENCES + 1)]
    assert len(set(minted)) == len(minted)
    assert minted == sorted(minted)
    assert [unix_ms(minted[index]) - NOW for index in (0, SEQUENCES - 1, SEQUENCES, 2 * SEQUENCES)] == [0, 0, 1, 2]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(NOW - 50, NOW + 50), st.integers(-100, 100)), max_size=60))
def test_an_id_is_later_than_after(steps: list[tuple[int, int]]) -> None:
    ids, last = Snowflake(3), 0
    for now, drift in steps:
        after = compose(NOW + drift, 900, 17)
        minted = ids.next(now, after)
        assert minted > max(last, after)
        last = minted


def test_an_after_that_is_long_past_changes_nothing() -> None:
    assert Snowflake(7).next(NOW, after=compose(NOW - 1, 900, 5)) == Snowflake(7).next(NOW)


def test_the_clock_of_a_node_that_is_before_the_epoch_still_gives_ids(ids: Snowflake) -> None:
    assert 0 < ids.next(0) < ids.next(0)


@pytest.mark.parametrize("node", [-1, MAX_NODE + 1])
def test_a_node_outside_ten_bits_is_refused(node: int) -> None:
    with pytest.raises(InvalidInput, match=f"node id {node}"):
        Snowflake(node)
