"""Bundles: the history of one root execution and of all it has called, in an object store, for good.

    manifest.json                    what the bundle is, what each of its objects must hash to; written last
    events/segment-000001.jsonl.zst  the events, in bounded pieces; beside each its digest, as sha256sum writes it
    results/result-manifest.json     every object that the events refer to
    results/objects/<sha256>         those of them that are copied into the bundle
    logs/control-plane.jsonl.zst     what was decided, a line each
    logs/worker-events.jsonl.zst     what workers have done and printed, a line each
    metrics/summary.json             counts and durations
    lineage/lineage.json             what was made of what, by which documents
    security/access-snapshot.json    who asked, and on whose authority it ran
    signatures/manifest.sig          an Ed25519 signature of the manifest

A bundle is archived when its manifest is there, and never changed from then on. All but the manifest and its signature
are named by their digests in the manifest. A reader needs the store and nothing else: no database, no home.
"""

from __future__ import annotations

from noetl.archive.bundle.layout import ArchivedExecution, Manifest, Segment
from noetl.archive.bundle.reader import Bundle, open_bundle

__all__ = ["ArchivedExecution", "Bundle", "Manifest", "Segment", "open_bundle"]
