"""What the first event of an execution says: what is run, with what, and on whose authority."""

from __future__ import annotations

from collections.abc import Mapping

from noetl.engine.workload import workload_of
from noetl.kernel.event import Json, PayloadRef
from noetl.playbook.document import Playbook
from noetl.playbook.templates import Host
from noetl.runtime.requests import Origin, Request
from noetl.tools.authority import Authority

__all__ = ["opening_of"]


def opening_of(
    request: Request,
    playbook: Playbook,
    ref: PayloadRef,
    execution_id: int,
    origin: Origin,
    now: str,
    env: Mapping[str, str],
) -> Json:
    """The payload of `playbook.initialized`."""
    own = str(execution_id)
    identity: Json = {
        "execution_id": own,
        "catalog_id": None if request.catalog_id is None else str(request.catalog_id),
        "job": {"uuid": own, "execution_id": own, "id": own},
    }
    if origin.server_url is not None:
        identity["server_url"] = origin.server_url
    workload, seeds = workload_of(playbook, request.workload, identity, Host(now=now), env)
    opening: Json = {
        "ctx": seeds,
        "path": playbook.path,
        "document": {
            "sha256": ref.sha256,
            "bytes": ref.bytes,
            "path": playbook.path,
            "origin": request.origin,
            "file": request.file,
            "entry": playbook.entry,
            **_catalog_entry(request),
        },
        "workload": workload,
        "root_execution_id": request.root_execution_id or execution_id,
        "parent_execution_id": request.parent_execution_id,
        "depth": request.depth,
        "home": origin.home,
        "authority": Authority.read(request.authority).recorded(),
        **({} if request.execution_pool is None else {"execution_pool": request.execution_pool}),
    }
    return opening | ({"alone": True} if origin.is_alone else {})


def _catalog_entry(request: Request) -> Json:
    found = {"version": request.version, "catalog_id": request.catalog_id}
    return {name: value for name, value in found.items() if value is not None}
