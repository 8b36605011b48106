"""The caller that a process is when nobody has to say who they are: its own user."""

from __future__ import annotations

from noetl.ports.access import ROLES, Caller
from noetl.runtime.origin import origin_of
from noetl.settings import Settings

__all__ = ["local_caller"]


def local_caller(settings: Settings) -> Caller:
    """The user of this process, with every role: the operating system has decided what they may touch."""
    return Caller(
        principal=origin_of(settings).principal,
        tenant_id=settings.tenant.id,
        organization_id=settings.tenant.organization,
        roles=frozenset(ROLES),
    )
