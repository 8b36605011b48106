"""Making a bundle of a story whose events are written: the documents around them, and the manifest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from noetl.archive.bundle.layout import (
    ACCESS,
    CONTROL_LOG,
    LINEAGE,
    METRICS,
    RESULTS,
    WORKER_LOG,
    ArchivedHome,
    Manifest,
    ResultEntry,
    ResultManifest,
    document,
    ends_digest,
)
from noetl.archive.bundle.story import Story
from noetl.archive.bundle.writer import BundleWriter
from noetl.kernel.names import Home, execution_prefix, shard_label, shard_of
from noetl.tools.secrets.signing import Signer

__all__ = ["finish_bundle", "home_of", "prefix_of"]


def home_of(recorded: dict[str, Any] | None) -> Home:
    """Where an execution lives, as its first event says; those of older logs do not say it."""
    said = recorded or {}
    return Home(
        env=said.get("env") or "unknown", region=said.get("region") or "unknown", cell=said.get("cell") or "unknown"
    )


def prefix_of(home: Home, tenant_id: str, project_id: str, execution_id: int) -> str:
    """Where the bundle of a root execution belongs in whichever store."""
    return execution_prefix(home, tenant_id, project_id, execution_id)


async def finish_bundle(
    writer: BundleWriter,
    story: Story,
    prefix: str,
    results: Sequence[ResultEntry],
    outputs: Sequence[dict[str, Any]],
    signer: Signer,
    *,
    payloads: bool,
) -> tuple[Manifest, str]:
    """Write all that is left to write, the manifest last; the manifest and its digest."""
    refs = [entry.ref for entry in results]
    parts = {
        RESULTS: ResultManifest(objects=tuple(results)),
        METRICS: story.metrics(refs),
        LINEAGE: story.lineage(outputs),
        ACCESS: story.access(),
    }
    for path, value in parts.items():
        await writer.put(path, await asyncio.to_thread(document, value))
    for path, log in ((CONTROL_LOG, story.control), (WORKER_LOG, story.work)):
        await writer.put(path, log.close())
    root, executions = story.root(), story.executions()
    tenant_id, project_id = root.tenant_id or "", root.project_id or ""
    home = home_of(root.home)
    manifest = Manifest(
        created_at=story.last_time,
        tenant_id=tenant_id,
        organization_id=root.organization_id or "",
        project_id=project_id,
        execution_id=executions[0].execution_id,
        home=ArchivedHome(
            env=home.env,
            region=home.region,
            cell=home.cell,
            shard=shard_label(shard_of(tenant_id, project_id, int(executions[0].execution_id))),
        ),
        prefix=prefix,
        events=story.events,
        stream_heads=ends_digest(tenant_id, executions),
        executions=executions,
        segments=tuple(writer.segments),
        parts=writer.parts,
        payloads=payloads,
        public_key=signer.public_key,
    )
    return manifest, await writer.finish(manifest, signer)
