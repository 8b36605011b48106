"""Which stream holds what, and what a consumer of some shards asks for."""

from __future__ import annotations

import pytest

from noetl.adapters.nats.streams import Topology, consumer_name
from noetl.errors import InvalidInput
from noetl.kernel.names import SHARD_COUNT


def test_one_stream_holds_everything() -> None:
    topology = Topology(region="usw2")
    assert topology.events == ["NOETL_EVT_usw2_s0000"]
    assert (topology.commands, topology.dead_letters) == ("NOETL_CMD_usw2_s0000", "NOETL_DLQ_usw2_s0000")
    assert topology.subjects("NOETL_EVT_usw2_s0000") == ["noetl.events.>"]
    assert topology.filters("NOETL_EVT_usw2_s0000", None) == []
    assert topology.filters("NOETL_EVT_usw2_s0000", [3, 1, 3]) == [
        "noetl.events.*.*.*.s0001", "noetl.events.*.*.*.s0003",
    ]  # fmt: skip


@pytest.mark.parametrize("streams", [1, 2, 4, 64, 256])
def test_every_shard_is_in_one_stream(streams: int) -> None:
    topology = Topology(streams=streams)
    assert len(topology.events) == streams
    assert [topology.stream_of(shard) for shard in range(0, SHARD_COUNT, topology.width)] == topology.events
    if streams > 1:
        subjects = [subject for name in topology.events for subject in topology.subjects(name)]
        assert len(set(subjects)) == len(subjects) == 2 * SHARD_COUNT


@pytest.mark.parametrize("streams", [0, 3, 100, 512])
def test_streams_that_cannot_share_equally_are_refused(streams: int) -> None:
    with pytest.raises(InvalidInput, match="256 shards"):
        Topology(streams=streams)


def test_names_are_what_nats_takes_and_stay_apart() -> None:
    names = ["projector-0", "a.b", "a b", "a_b", "a_2e_b", "ä", "x", "a*>", "xa", "x_a_2e_b"]
    spelled = [consumer_name(name) for name in names]
    assert len(set(spelled)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzprojector0123456789-_") for name in spelled)
