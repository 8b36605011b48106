"""A retry as somebody asks a server for it: an earlier execution, and the request that goes on from it."""

from __future__ import annotations

import msgspec

from noetl.errors import InvalidInput
from noetl.playbook.parse import load
from noetl.ports.catalog import CatalogEntry
from noetl.runtime.driver import Driver, Origin, Request
from noetl.runtime.embedded.runner import find_document
from noetl.runtime.fork import Forks, Repaired, Retry
from noetl.runtime.service.shapes import RetryRequest, checked_depth
from noetl.runtime.wiring import Embedded
from noetl.tools.registry import Registry

__all__ = ["plan_retry"]


async def plan_retry(
    embedded: Embedded, origin: Origin, driver: Driver, execution_id: int, asked: RetryRequest, principal: str
) -> Request:
    """The request that starts the retry. Raises NotFound, InvalidDocument, or InvalidInput saying what to ask for."""
    if asked.payload is not None and asked.workload is not None:
        raise InvalidInput("`payload` and `workload` are two names of one thing", hint="give one of them")
    workload = asked.payload or asked.workload or {}
    checked_depth(workload, "the payload")
    entry: CatalogEntry | None = None
    if asked.latest or asked.version is not None:
        path = (await driver.execution(execution_id)).playbook.path
        entry = await find_document(embedded.catalog, origin.tenant_id, path, asked.version)
    retry = Retry(
        execution_id=execution_id,
        step=asked.step,
        workload=workload,
        key=asked.idempotency_key,
        repaired=None if entry is None else _repaired(entry),
        force=asked.force,
    )
    request = await Forks(embedded.ledger, embedded.payloads, driver, origin.tenant_id).plan(retry)
    request = msgspec.structs.replace(request, principal=principal)
    if entry is None:
        return request
    return msgspec.structs.replace(request, version=entry.version, catalog_id=entry.catalog_id)


def _repaired(entry: CatalogEntry) -> Repaired:
    file = f"{entry.path}@{entry.version}"
    playbook = load(entry.content, file, kinds=Registry().user_kinds())
    return Repaired(text=entry.content, file=file, origin="catalog", playbook=playbook)
