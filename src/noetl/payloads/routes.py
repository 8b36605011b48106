"""Store kinds that lead elsewhere: which of several object stores a key belongs to.

A playbook may ask for a result to be kept in `s3` or `gcs`, and the setting `payloads.routes` says which bucket that
is. The key of such an object begins with the route, so that whoever has the key needs nothing else to find the object.
"""

from __future__ import annotations

__all__ = ["CLOUD_SCHEMES", "is_routed", "routed", "split_route"]

CLOUD_SCHEMES = {"s3": "s3://", "gcs": "gs://"}
"""The store kinds that name a technology, and how an address of it begins."""

_PREFIX = "route="


def routed(kind: str, key: str) -> str:
    """The key of an object that is kept where a route leads."""
    return f"{_PREFIX}{kind}/{key}"


def is_routed(key: str) -> bool:
    """Whether an object is kept elsewhere than in the installation's own store."""
    return key.startswith(_PREFIX)


def split_route(key: str) -> tuple[str | None, str]:
    """The route that a key begins with, None for the installation's own store, and the key there."""
    if not is_routed(key):
        return None, key
    kind, _, rest = key.removeprefix(_PREFIX).partition("/")
    return kind, rest
