"""Keys that say which of several stores they belong to."""

from __future__ import annotations

import pytest

from noetl.payloads.routes import is_routed, routed, split_route


@pytest.mark.parametrize("key", ["acme/aa/bb/aabb", "noetl/env=dev/x.bin", "routes/a"])
def test_a_key_without_a_route_is_our_own(key: str) -> None:
    assert (is_routed(key), split_route(key)) == (False, (None, key))


def test_a_route_is_the_first_part_of_a_key() -> None:
    key = routed("s3", "noetl/env=dev/x.bin")
    assert (key, is_routed(key)) == ("route=s3/noetl/env=dev/x.bin", True)
    assert split_route(key) == ("s3", "noetl/env=dev/x.bin")
