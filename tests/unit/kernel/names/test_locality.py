from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.kernel.names import (
    Distance,
    InfrastructureName,
    Locality,
    Placement,
    distance,
    evaluate,
    locality_of,
    parse,
    parse_distance,
    within,
)

HERE = Locality(node="n1", zone="us-a", region="us", cluster="prod")
_few = st.none() | st.sampled_from(["", "a", "b"])
places = st.builds(Locality, node=_few, zone=_few, region=_few, cluster=_few)


def test_distances_are_ordered_from_near_to_far() -> None:
    assert Distance.NODE < Distance.ZONE < Distance.REGION < Distance.CLUSTER < Distance.ANY
    assert max(Distance) is Distance.ANY


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (HERE, Distance.NODE),
        (Locality(node="n2", zone="us-a", region="us", cluster="prod"), Distance.ZONE),
        (Locality(node="n2", zone="us-b", region="us", cluster="prod"), Distance.REGION),
        (Locality(node="n2", zone="eu-a", region="eu", cluster="prod"), Distance.CLUSTER),
        (Locality(node="n2", zone="eu-a", region="eu", cluster="test"), Distance.ANY),
        (Locality(zone="us-a", region="us", cluster="test"), Distance.ZONE),
    ],
)
def test_the_distance_is_the_closest_thing_shared(there: Locality, expected: Distance) -> None:
    assert distance(HERE, there) is expected


def test_a_zone_of_the_same_name_in_another_region_is_another_zone() -> None:
    assert distance(Locality(zone="a", region="us"), Locality(zone="a", region="eu")) is Distance.ANY


@pytest.mark.parametrize("outer", ["zone", "region", "cluster"])
def test_a_node_of_the_same_name_elsewhere_is_another_node(outer: str) -> None:
    one, other = (msgspec.structs.replace(Locality(node="n1"), **{outer: place}) for place in ("a", "b"))
    assert distance(one, other) is Distance.ANY


@pytest.mark.parametrize("nowhere", [Locality(), Locality(node="", zone="", region="", cluster="")])
def test_what_is_unknown_is_never_equal(nowhere: Locality) -> None:
    assert distance(nowhere, nowhere) is Distance.ANY
    assert distance(nowhere, HERE) is Distance.ANY


def test_an_unknown_container_does_not_make_equal_names_differ() -> None:
    assert distance(Locality(node="laptop"), Locality(node="laptop", region="us")) is Distance.NODE


@given(places, places)
def test_distance_has_no_direction(one: Locality, other: Locality) -> None:
    assert distance(one, other) is distance(other, one)


def test_within_follows_the_order() -> None:
    for actual, limit in itertools.product(Distance, Distance):
        assert within(actual, limit) == (list(Distance).index(actual) <= list(Distance).index(limit))


def test_a_placement_records_the_comparison() -> None:
    there = msgspec.structs.replace(HERE, node="n2", zone="us-b")
    placement = evaluate(HERE, there, Distance.ZONE)
    assert placement == Placement(distance=Distance.REGION, max_distance=Distance.ZONE, within_max_distance=False)
    assert msgspec.to_builtins(placement) == {
        "distance": "region",
        "max_distance": "zone",
        "within_max_distance": False,
    }


@given(places, places)
def test_any_distance_is_the_default_and_always_within(one: Locality, other: Locality) -> None:
    assert evaluate(one, other).within_max_distance


def test_a_distance_is_asked_for_by_name() -> None:
    assert [parse_distance(level.value) for level in Distance] == list(Distance)
    with pytest.raises(InvalidName, match=r"'rack' is not a distance \(node, zone, region, cluster or any\)"):
        parse_distance("rack")


def test_a_workers_name_holds_its_place() -> None:
    name = parse("noetl://tenant/acme/region/us/zone/us-a/cluster/prod/node/n1/worker/w")
    assert isinstance(name, InfrastructureName)
    assert locality_of(name) == HERE
