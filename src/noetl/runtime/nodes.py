"""Node ids: the ten bits that keep the event ids of two ledger writers apart."""

from __future__ import annotations

import hashlib

from noetl.errors import InvalidInput, Unavailable
from noetl.kernel.ids import MAX_NODE
from noetl.ports.leases import Lease, Leases

__all__ = ["lease_node_id", "node_of_lease"]

_PREFIX = "node/"
_NODES = MAX_NODE + 1


async def lease_node_id(leases: Leases, owner: str, seconds: float = 60) -> Lease:
    """The right to a node id nobody else has. Raises Unavailable when all are taken.

    The search begins at a number derived from the owner, so writers that start together rarely meet
    and one that comes back finds its old id first.
    """
    start = int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8], "big")
    for offset in range(_NODES):
        lease = await leases.take(f"{_PREFIX}{(start + offset) % _NODES}", owner, seconds=seconds)
        if lease is not None:
            return lease
    raise Unavailable(
        f"all {_NODES} node ids are taken, so '{owner}' cannot write to the ledger",
        hint=f"stop a writer that is not needed; the id of one that died is free again after {seconds:g} s",
    )


def node_of_lease(lease: Lease) -> int:
    """The node id that a lease stands for."""
    number = lease.name.removeprefix(_PREFIX)
    if not lease.name.startswith(_PREFIX) or not number.isdecimal() or int(number) > MAX_NODE:
        raise InvalidInput(f"lease '{lease.name}' is not the lease of a node id")
    return int(number)
