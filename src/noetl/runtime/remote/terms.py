"""On which terms commands are given to workers of other processes."""

from __future__ import annotations

import msgspec

from noetl.runtime.control import COMMANDS, LEASE_SECONDS
from noetl.runtime.execution import Execution
from noetl.runtime.pool import BEAT_SECONDS
from noetl.runtime.reaper import REAP_SECONDS
from noetl.runtime.requests import KEPT_BY_SERVER
from noetl.runtime.worker import with_workbook

__all__ = ["Afar", "is_kept", "needs_spark_pool", "prefix_of", "terms_of"]

_OWN_SECONDS = 10.0


class Afar(msgspec.Struct, frozen=True, kw_only=True):
    """The leases of one organisation's commands, where processes share them."""

    prefix: str
    owner: str
    """Who this process is in leases of its own."""
    lease_seconds: float = LEASE_SECONDS
    own_seconds: float = LEASE_SECONDS
    """How long a command stays with this process when it is not heard of."""
    beat_seconds: float = BEAT_SECONDS
    reap_seconds: float = REAP_SECONDS
    has_workers: bool = False
    """Whether workers elsewhere run commands; else this process runs those of the executions that it drives."""


def is_kept(execution: Execution, command_id: int, step: str, kind: str) -> bool:
    """Whether a command stays with the server: one that needs Spark, unless it was issued to a pool that has it."""
    return "pool" not in execution.commands.get(command_id, {}) and needs_spark_pool(execution, step, kind)


def needs_spark_pool(execution: Execution, step: str, kind: str) -> bool:
    """Whether a command is for the server or workers with Spark: it is of such a kind, or has such a task in it."""
    if kind in KEPT_BY_SERVER or kind != "pipeline":
        return kind in KEPT_BY_SERVER
    tasks = with_workbook(execution.playbook, execution.playbook.steps[step]).tasks
    return any(task.kind in KEPT_BY_SERVER for task in tasks)


def prefix_of(tenant_id: str, organization_id: str) -> str:
    """What the names of an organisation's leases begin with."""
    return f"{COMMANDS}{tenant_id}/{organization_id}/"


def terms_of(
    tenant_id: str,
    organization_id: str,
    owner: str,
    lease_seconds: float = LEASE_SECONDS,
    *,
    has_workers: bool = True,
) -> Afar:
    """The terms for an organisation. Its leases have names of their own, so that whoever reaps knows whose they are.

    What servers and local runs keep themselves they keep for a shorter time: they are near the database, and others are
    to go on soon after one was killed.
    """
    own = min(lease_seconds, _OWN_SECONDS)
    return Afar(
        prefix=prefix_of(tenant_id, organization_id),
        owner=owner,
        lease_seconds=lease_seconds,
        own_seconds=own,
        beat_seconds=min(BEAT_SECONDS, own / 4),
        reap_seconds=min(REAP_SECONDS, own / 4),
        has_workers=has_workers,
    )
