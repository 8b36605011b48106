"""Local runs on a log that servers share: for as long as one lives, nobody else works on its executions.

A run holds a lease with the name of the execution at the root of its tree. One that was killed does not renew it, and
servers that find it lapsed go on with what the run has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from noetl.errors import LeaseLost, NoetlError
from noetl.kernel.ids import unix_ms
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease, Leases
from noetl.runtime.process import process_name
from noetl.runtime.requests import Origin

__all__ = ["Left", "held", "is_alive", "lapsed", "name_of"]

_PREFIX = "alone/"
_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_TAKEN_OVER = "servers"
"""Who holds what a run has left: then the run knows, should it only have slept."""
_TAKEN_OVER_SECONDS = 24 * 3600.0

_log = logging.getLogger("noetl.alone")


class Left(NamedTuple):
    """An execution that a run has left."""

    tenant_id: str
    organization_id: str
    execution_id: int


def name_of(origin: Origin, execution_id: int | str) -> str:
    """The lease of an execution at the root of a tree, or of what else only one run may have."""
    return f"{_PREFIX}{origin.tenant_id}/{origin.organization_id}/{execution_id}"


async def is_alive(leases: Leases, origin: Origin, root_execution_id: int, now: int) -> bool:
    """Whether a local run holds the execution, or has begun it so short a time ago that it is about to."""
    found = await leases.holder(name_of(origin, root_execution_id))
    if found is None:
        return now // 1000 - unix_ms(root_execution_id) < _SECONDS * 1000
    return found.owner != _TAKEN_OVER


async def lapsed(leases: Leases) -> list[Left]:
    """The executions whose runs were not heard of for too long; each is given to one caller, who goes on with it."""
    found = []
    for lease in await leases.expire(_PREFIX):
        tenant_id, organization_id, number = lease.name.removeprefix(_PREFIX).rsplit("/", 2)
        if number.isdecimal() and lease.owner != _TAKEN_OVER:
            found.append(Left(tenant_id, organization_id, int(number)))
            await leases.take(lease.name, _TAKEN_OVER, seconds=_TAKEN_OVER_SECONDS)
    return found


@contextlib.asynccontextmanager
async def held(leases: Leases, name: str, clock: Clock, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Be the only local run with a lease of this name; while another one is, wait until it has ended or is gone."""
    owner, told = f"{process_name('run')}/{secrets.token_hex(4)}", False
    while (lease := await _taken(leases, name, owner)) is None:
        if not told:
            on_wait()
            told = True
        await clock.sleep(_LOOK_SECONDS)
    keeping = asyncio.create_task(_keep(leases, lease, clock))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        with contextlib.suppress(NoetlError):  # it lapses by itself
            await leases.release(lease)


async def _taken(leases: Leases, name: str, owner: str) -> Lease | None:
    """The lease, also from servers that have gone on with it: whoever resumes it here is who is asked for it now."""
    found = await leases.holder(name)
    if found is not None and found.owner == _TAKEN_OVER:
        with contextlib.suppress(LeaseLost):
            await leases.release(found)
    return await leases.take(name, owner, seconds=_SECONDS)


async def _keep(leases: Leases, lease: Lease, clock: Clock) -> None:
    """Renew it. A run that slept for too long hears that servers go on; what it does meanwhile is decided by leases."""
    while True:
        await clock.sleep(_SECONDS / 4)
        try:
            lease = await leases.renew(lease, seconds=_SECONDS)
        except LeaseLost:
            again = await leases.take(lease.name, lease.owner, seconds=_SECONDS)
            if again is None:
                _log.warning("this run was not heard of for %g s; servers go on with it", _SECONDS)
                return
            lease = again
        except NoetlError as error:
            _log.warning("%s", error)
