from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.kernel.names import (
    SHARD_COUNT,
    command_stream,
    dead_letter_stream,
    event_stream,
    fnv1a64,
    parse_shard,
    shard_label,
    shard_of,
)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"b", 0xAF63DF4C8601F1A5),
        (b"foobar", 0x85944171F73967E8),
    ],
)
def test_the_hash_matches_the_published_vectors(data: bytes, digest: int) -> None:
    assert fnv1a64(data) == digest


def test_the_shard_is_the_hash_of_scope_and_affinity() -> None:
    assert shard_of("acme", "risk", 42) == fnv1a64(b"acme\x00risk\x0042") % 256
    assert shard_of("acme", "risk", "42") == shard_of("acme", "risk", 42)


def test_moving_the_boundary_between_tenant_and_project_moves_the_hash() -> None:
    assert shard_of("ab", "c", 1) != shard_of("a", "bc", 1)


def test_executions_spread_over_all_shards() -> None:
    assert {shard_of("default", "default", n) for n in range(4096)} == set(range(SHARD_COUNT))


@given(st.integers(0, SHARD_COUNT - 1))
def test_a_label_reads_back(shard: int) -> None:
    assert parse_shard(shard_label(shard)) == shard


def test_a_label_has_four_digits() -> None:
    assert shard_label(42) == "s0042"


@pytest.mark.parametrize("shard", [-1, 256])
def test_a_shard_outside_the_region_is_refused(shard: int) -> None:
    with pytest.raises(InvalidName, match=r"is outside 0\.\.255"):
        shard_label(shard)


@pytest.mark.parametrize("label", ["", "0042", "s42", "s0256", "s00042", "S0042", "s00٤2"])
def test_another_label_is_refused(label: str) -> None:
    with pytest.raises(InvalidName, match="is not a shard label"):
        parse_shard(label)


def test_streams_are_named_for_region_and_shard() -> None:
    assert event_stream("usw2", 42) == "NOETL_EVT_usw2_s0042"
    assert command_stream("usw2", 42) == "NOETL_CMD_usw2_s0042"
    assert dead_letter_stream("us-west-2", 255) == "NOETL_DLQ_us-west-2_s0255"


@pytest.mark.parametrize("region", ["", "us.west", "us west", "us*", ">", "a/b", "é"])
def test_a_region_that_no_stream_may_hold_is_refused(region: str) -> None:
    with pytest.raises(InvalidName, match="cannot stand in a stream name"):
        event_stream(region, 0)
