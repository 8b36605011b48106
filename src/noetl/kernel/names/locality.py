"""How far apart two places are, so that work can prefer to run where its data was made.

What is not known is never taken as equal, and a name means something only inside what contains it: a
zone of the same name in another region is another zone, and so is a node of the same name elsewhere.
"""

from __future__ import annotations

from enum import Enum
from functools import total_ordering

import msgspec

from noetl.errors import InvalidName
from noetl.kernel.names.locator import InfrastructureName
from noetl.kernel.names.segments import show

__all__ = ["Distance", "Locality", "Placement", "distance", "evaluate", "locality_of", "parse_distance", "within"]

# What a level's name is relative to. Where one of these is known on both sides and differs, so does the level.
_CONTAINERS = {"node": ("zone", "region", "cluster"), "zone": ("region",), "region": (), "cluster": ()}


@total_ordering
class Distance(Enum):
    """The closest thing that two places share, nearest first."""

    NODE = "node"
    ZONE = "zone"
    REGION = "region"
    CLUSTER = "cluster"
    ANY = "any"

    def __lt__(self, other: Distance) -> bool:
        return _RANK[self] < _RANK[other]


_RANK = {level: rank for rank, level in enumerate(Distance)}


class Locality(msgspec.Struct, frozen=True, kw_only=True):
    """Where something is, as far as it is known."""

    node: str | None = None
    zone: str | None = None
    region: str | None = None
    cluster: str | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What a dispatch event records, so that the decision can be replayed without asking where things are now."""

    distance: Distance
    max_distance: Distance
    within_max_distance: bool


def distance(one: Locality, other: Locality) -> Distance:
    """The closest level that both places are known to share."""
    return next((Distance(level) for level in _CONTAINERS if _shared(level, one, other)), Distance.ANY)


def _shared(level: str, one: Locality, other: Locality) -> bool:
    name = getattr(one, level)
    return (
        bool(name)
        and name == getattr(other, level)
        and not any(_differ(getattr(one, outer), getattr(other, outer)) for outer in _CONTAINERS[level])
    )


def _differ(one: str | None, other: str | None) -> bool:
    return bool(one) and bool(other) and one != other


def within(actual: Distance, max_distance: Distance) -> bool:
    """True if work this far away is still acceptable."""
    return actual <= max_distance


def evaluate(source: Locality, target: Locality, max_distance: Distance = Distance.ANY) -> Placement:
    """Compare where data was made with where it would be used."""
    actual = distance(source, target)
    return Placement(distance=actual, max_distance=max_distance, within_max_distance=within(actual, max_distance))


def parse_distance(text: str) -> Distance:
    """The distance that a playbook or a claim asks for by name."""
    try:
        return Distance(text)
    except ValueError:
        raise InvalidName(f"{show(text)} is not a distance", hint="node, zone, region, cluster or any") from None


def locality_of(name: InfrastructureName) -> Locality:
    """The place inside a worker's name."""
    return Locality(node=name.node, zone=name.zone, region=name.region, cluster=name.cluster)
