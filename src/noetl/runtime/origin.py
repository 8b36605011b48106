"""On whose behalf a process writes events."""

from __future__ import annotations

import os

from noetl.kernel.names import InfrastructureName
from noetl.runtime.driver import Origin
from noetl.settings import Settings

__all__ = ["origin_of"]


def origin_of(settings: Settings, tenant_id: str | None = None, organization_id: str | None = None) -> Origin:
    """The local user at the place that the settings name, in their tenant unless another one is given."""
    place = settings.place
    tenant, organization = tenant_id or settings.tenant.id, organization_id or settings.tenant.organization
    producer = InfrastructureName(
        tenant=tenant, org=organization, region=place.region, zone=place.zone, cluster=place.cluster, node=place.node
    )
    return Origin(
        tenant_id=tenant,
        organization_id=organization,
        project_id=settings.tenant.project,
        principal=f"user:{os.environ.get('USER') or os.environ.get('LOGNAME') or 'local'}",
        producer=str(producer),
        home={"env": place.env, "region": place.region, "cell": place.cell},
    )
