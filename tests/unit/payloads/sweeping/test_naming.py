"""Keys and names meet in one identity, whatever steps and tasks are called."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.kernel.names import FrameCoordinates, Home, ResultCoordinates
from noetl.payloads.routes import routed
from noetl.payloads.store import payload_key
from noetl.payloads.sweeping.naming import LONGEST_NAME, names_in, owner_of, read_key

LABELS = st.text(min_size=1, max_size=200)
HOMES = st.builds(Home, env=st.sampled_from(["dev", "prod"]), region=st.just("eu"), cell=st.just("c/1"), root=st.none())


@st.composite
def places(draw: st.DrawFn) -> ResultCoordinates:
    frame = draw(st.none() | st.builds(FrameCoordinates, epoch=st.just(1), slot=st.just(2), index=st.just(3)))
    task = draw(st.none() | LABELS)
    try:
        return ResultCoordinates(
            tenant=draw(LABELS), project=draw(LABELS), execution_id=draw(st.integers(1, 1 << 62)), step=draw(LABELS),
            run=1, frame=frame, row=draw(st.none() | st.integers(0, 9)), attempt=draw(st.integers(1, 9)), task=task,
            visit=None if task is None else 1,
        )  # fmt: skip
    except InvalidName:
        return draw(places())


@given(places(), HOMES)
def test_the_name_of_a_result_means_its_object_wherever_it_lives(place: ResultCoordinates, home: Home) -> None:
    try:
        uri = place.logical_uri()
    except InvalidName:
        return  # too long to be written
    key = place.physical_key(home)
    named = read_key(key)
    assert named is not None
    assert (named.kind, named.execution, named.tenant) == ("result", place.execution_id, owner_of(place.tenant))
    assert len(uri) < LONGEST_NAME
    for text in (json.dumps({"uri": uri}), json.dumps(["a", {"key": key}]), f'"see {uri} and {uri}"'):
        assert named.identity in set(names_in(text.encode()))


@given(places(), HOMES)
def test_an_effect_is_told_from_a_result(place: ResultCoordinates, home: Home) -> None:
    try:
        key = place.effect_object_key(home)
    except InvalidName:
        return
    named = read_key(key)
    assert named is not None
    assert named.kind == "effect"
    assert named.identity in set(names_in(json.dumps([key]).encode()))


@pytest.mark.parametrize("tenant", ["acme", "noetl", "ümläut/x", "x" * 300])
def test_a_payload_is_known_by_its_digest_alone(tenant: str) -> None:
    digest = "ab" * 32
    named = read_key(payload_key(tenant, digest))
    assert named is not None
    assert (named.kind, named.execution) == ("payload", None)
    assert named.identity in set(names_in(f"...{digest}...".encode()))


def test_digests_that_stand_side_by_side_are_all_found() -> None:
    digests = ["ab" * 32, "cd" * 32, "0f" * 32]
    assert {bytes.fromhex(one) for one in digests} == set(names_in("".join(digests).encode()))


def test_a_route_does_not_change_what_an_object_is() -> None:
    key = payload_key("acme", "ab" * 32)
    assert read_key(routed("s3", key)) == read_key(key)
