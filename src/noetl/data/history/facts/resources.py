"""resource_fact: what has become of resources, and which payloads were stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.data.history.facts.telling import HEAD, bare, chosen, number, ref, said, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["parts"]

_ACTIONS = {
    "catalog.resource.registered": "registered",
    "catalog.resource.location_added": "located",
    "catalog.resource.replica_available": "replicated",
    "catalog.resource.grant_created": "granted",
    "catalog.resource.archived": "archived",
    "catalog.resource.deleted_or_expired": "deleted",
}
_COLUMNS = {
    **HEAD,
    "action": "CASE kind " + " ".join(f"WHEN '{kind}' THEN '{name}'" for kind, name in _ACTIONS.items()) + " END",
    "resource": "stream_id",
    "kind": "coalesce(" + said("kind") + ", split_part(stream_id, '/', 4))",
    "principal": "coalesce(" + said("principal") + ", principal)",
    "step": "CAST(NULL AS string)",
    "uri": said("location.uri"),
    "region": said("location.region"),
    "sha256": said("location.sha256"),
    "bytes": number(said("location.bytes")),
    "rows": "CAST(NULL AS bigint)",
    "media_type": "CAST(NULL AS string)",
}
_STORED = {
    "action": "'stored'",
    "resource": "stream_id",
    "kind": "'payload'",
    "principal": "principal",
    "step": "node_name",
    "uri": ref("uri"),
    "region": "CAST(NULL AS string)",
    "sha256": ref("sha256"),
    "bytes": number(ref("bytes")),
    "rows": number(ref("rows")),
    "media_type": ref("media_type"),
}


def parts(events: DataFrame) -> DataFrame:
    """A row for each event of the registry, and one for each reference to a payload."""
    stored = chosen(bare(events.where("payload_ref IS NOT NULL")), {**HEAD, **_STORED})
    return chosen(told(events, _ACTIONS), _COLUMNS).unionByName(stored)
