"""Where workers are, how far that is from where a command wants to run, and who of them takes it.

A command that says nothing is for whoever comes first. Labels are required: nobody without them ever runs it. A
preference is worth a short wait, and a largest distance is worth a wait for as long as somebody nearer is there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from noetl.kernel.event import Json
from noetl.kernel.names import InfrastructureName
from noetl.playbook.document import Executor, Placement
from noetl.playbook.words import DISTANCES
from noetl.settings import Place

__all__ = ["GRACE_SECONDS", "Candidate", "Locality", "Verdict", "distance", "judge", "locality_of", "locator", "wanted"]

Distance = Literal["node", "zone", "region", "any"]
GRACE_SECONDS = 3.0
"""How long a command waits for a worker that it prefers, and that is there."""
_SOON, _LATER, _RARELY = 0.5, 1.0, 5.0


class Locality(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A place, as far as it is known."""

    region: str | None = None
    zone: str | None = None
    cluster: str | None = None
    node: str | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that could take a command."""

    worker_id: str
    locality: Locality
    labels: Mapping[str, str]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a worker takes a command, and why. If not, it comes again after so many seconds."""

    taken: bool
    reason: str
    distance: Distance = "any"
    seconds: float = 0.0

    def recorded(self, placement: Json) -> Json:
        """As the event of the claim tells."""
        most = placement.get("max_distance", "any")
        within = DISTANCES.index(self.distance) <= DISTANCES.index(most)
        found: Json = {**placement, "distance": self.distance, "within_max_distance": within, "reason": self.reason}
        return found


def locality_of(place: Place) -> Locality:
    """Where a process is, by its settings."""
    return Locality(region=place.region, zone=place.zone, cluster=place.cluster, node=place.node)


@functools.lru_cache(maxsize=256)
def locator(locality: Locality, tenant: str, organization: str, worker_id: str) -> str:
    """The name of a worker that works for a tenant."""
    return str(
        InfrastructureName(
            tenant=tenant, org=organization, region=locality.region, zone=locality.zone, cluster=locality.cluster,
            node=locality.node, worker=worker_id,
        )
    )  # fmt: skip


def distance(one: Locality, other: Locality) -> Distance:
    """How far two places are from each other: the smallest thing that they have in common."""
    if one.node is not None and one.node == other.node:
        return "node"
    if one.zone is not None and one.zone == other.zone:
        return "zone"
    return "region" if one.region is not None and one.region == other.region else "any"


def wanted(executor: Executor, own: Placement, here: Locality) -> Json:
    """What the event of a command says of where it wants to run; nothing for most. `here` is where it is issued.

    What a step says stands over what its executor says, and labels add up.
    """
    usual, labels = executor.placement, {**executor.requires_labels, **executor.placement.labels, **own.labels}
    said: Json = {
        "prefer_node": own.prefer_node or usual.prefer_node,
        "prefer_zone": own.prefer_zone or usual.prefer_zone,
        "max_distance": own.max_distance or usual.max_distance,
        "labels": labels,
    }
    found = {name: value for name, value in said.items() if value}
    return {**found, "source": msgspec.to_builtins(here)} if found else {}


def judge(placement: Json, worker: Candidate, others: Sequence[Candidate], waited: float) -> Verdict:
    """Whether a worker takes a command that wants to run somewhere, and was issued `waited` seconds ago.

    `others` are the workers of its pool that are there.
    """
    labels: dict[str, str] = placement.get("labels", {})
    if missing := [f"{name}={value}" for name, value in labels.items() if worker.labels.get(name) != value]:
        return Verdict(taken=False, reason=f"it has no label {', '.join(missing)}", seconds=_RARELY)
    able = [one for one in others if labels.items() <= dict(one.labels).items()]
    source = _source(placement)
    far = distance(source, worker.locality)
    most, reached = DISTANCES.index(placement.get("max_distance", "any")), DISTANCES.index(far)
    best = max((_liking(placement, one.locality) for one in able), default=0)
    if _liking(placement, worker.locality) < best and waited < GRACE_SECONDS:
        return Verdict(taken=False, reason="a worker that it prefers is there", distance=far, seconds=_SOON)
    if reached <= most:
        return Verdict(taken=True, reason="within the distance", distance=far)
    if any(DISTANCES.index(distance(source, one.locality)) <= most for one in able):
        return Verdict(taken=False, reason="a worker that is nearer is there", distance=far, seconds=_LATER)
    return Verdict(taken=True, reason="nobody nearer is there", distance=far)


def _source(placement: Json) -> Locality:
    """What distances are measured from: what is preferred, else where the command was issued."""
    here = msgspec.convert(placement.get("source", {}), Locality)
    node, zone = placement.get("prefer_node"), placement.get("prefer_zone")
    if node is None and zone is None:
        return here
    return msgspec.structs.replace(here, node=node, zone=zone)


def _liking(placement: Json, place: Locality) -> int:
    if placement.get("prefer_node") is not None and placement["prefer_node"] == place.node:
        return 2
    return int(placement.get("prefer_zone") is not None and placement["prefer_zone"] == place.zone)
