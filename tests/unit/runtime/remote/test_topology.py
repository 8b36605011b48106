"""Where workers are, and who of them takes a command that wants to run somewhere."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.playbook.document import Executor, Placement
from noetl.runtime.remote.topology import (
    GRACE_SECONDS,
    Candidate,
    Locality,
    distance,
    judge,
    locality_of,
    locator,
    wanted,
)
from noetl.settings import Place

HERE = Locality(region="eu", zone="a", node="n1")


def worker(node: str = "n1", zone: str = "a", region: str = "eu", **labels: str) -> Candidate:
    return Candidate(worker_id=f"w-{node}", locality=Locality(region=region, zone=zone, node=node), labels=labels)


def asking(**said: Any) -> dict[str, Any]:
    return wanted(Executor(), Placement(**said), HERE)


@pytest.mark.parametrize(
    ("other", "far"),
    [(HERE, "node"), (Locality(region="eu", zone="a", node="n2"), "zone"), (Locality(region="eu", zone="b"), "region"),
     (Locality(region="us", zone="c"), "any"), (Locality(), "any")],
)  # fmt: skip
def test_a_distance_is_the_smallest_thing_in_common(other: Locality, far: str) -> None:
    assert distance(HERE, other) == far


def test_what_is_not_known_is_not_in_common() -> None:
    assert distance(Locality(), Locality()) == "any"


def test_a_worker_has_a_name_by_its_place() -> None:
    locality = locality_of(Place(region="eu", zone="a", node="n1"))
    assert locator(locality, "acme", "care", "w1") == (
        "noetl://tenant/acme/org/care/region/eu/zone/a/node/n1/worker/w1"
    )


def test_most_commands_want_nothing() -> None:
    assert wanted(Executor(), Placement(), HERE) == {}


def test_a_step_stands_over_its_executor_and_labels_add_up() -> None:
    executor = Executor(requires_labels={"gpu": "1"}, placement=Placement(prefer_zone="a", max_distance="region"))
    found = wanted(executor, Placement(prefer_zone="b", labels={"disk": "ssd"}), HERE)
    assert found == {
        "prefer_zone": "b", "max_distance": "region", "labels": {"gpu": "1", "disk": "ssd"},
        "source": {"region": "eu", "zone": "a", "node": "n1"},
    }  # fmt: skip


def test_without_a_label_nobody_ever_takes_it() -> None:
    placement = asking(labels={"gpu": "1"})
    for waited in (0.0, 1e6):
        assert not judge(placement, worker(), [], waited).taken
        assert not judge(placement, worker(gpu="2"), [worker(gpu="1")], waited).taken
    assert judge(placement, worker(gpu="1"), [], 0.0).taken


def test_a_preferred_worker_that_is_there_is_waited_for() -> None:
    placement = asking(prefer_zone="b")
    near = worker("n2", "b")
    assert judge(placement, near, [], 0.0).taken
    declined = judge(placement, worker(), [near], 0.0)
    assert (declined.taken, declined.reason) == (False, "a worker that it prefers is there")
    assert declined.seconds < GRACE_SECONDS
    assert judge(placement, worker(), [near], GRACE_SECONDS).taken
    assert judge(placement, worker(), [worker("n3", "c")], 0.0).taken, "nobody is preferred"


def test_a_node_is_preferred_to_its_zone() -> None:
    placement = asking(prefer_node="n9", prefer_zone="b")
    assert not judge(placement, worker("n2", "b"), [worker("n9", "b")], 0.0).taken
    assert judge(placement, worker("n9", "b"), [worker("n2", "b")], 0.0).taken


def test_who_is_too_far_leaves_it_to_somebody_nearer_for_as_long_as_there_is_one() -> None:
    placement = asking(max_distance="zone")
    far = worker("n5", "b")
    declined = judge(placement, far, [worker("n2", "a")], 1e6)
    assert (declined.taken, declined.reason, declined.distance) == (False, "a worker that is nearer is there", "region")
    alone = judge(placement, far, [worker("n6", "c")], 0.0)
    assert (alone.taken, alone.reason) == (True, "nobody nearer is there")
    assert alone.recorded(placement)["within_max_distance"] is False
    near = judge(placement, worker("n2", "a"), [], 0.0)
    assert near.recorded(placement) | {"source": None} == {
        "max_distance": "zone", "source": None, "distance": "zone", "within_max_distance": True,
        "reason": "within the distance",
    }  # fmt: skip


def test_a_nearer_worker_without_the_labels_is_nobody() -> None:
    placement = asking(max_distance="node", labels={"gpu": "1"})
    assert judge(placement, worker("n5", gpu="1"), [worker("n1")], 0.0).taken
