"""The JSON Schema of each document of evidence, for readers that are not this program."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.replay.evidence.artefacts import (
    FILES,
    INDEX,
    SIGNATURE,
    Artefact,
    Index,
    LiveChecksums,
    LiveRows,
    Manifest,
    Parity,
    PayloadResolution,
    ReplayState,
    Signature,
)

__all__ = ["DOCUMENTS", "schema_of"]

DOCUMENTS: dict[str, type[Artefact]] = {
    FILES["replay_state"]: ReplayState,
    FILES["live_rows"]: LiveRows,
    FILES["live_checksums"]: LiveChecksums,
    FILES["parity"]: Parity,
    FILES["payload_resolution"]: PayloadResolution,
    FILES["manifest"]: Manifest,
    INDEX: Index,
    SIGNATURE: Signature,
}
"""What each file holds."""


def schema_of(file: str) -> dict[str, Any]:
    """The schema (2020-12) of a file of evidence, by its name."""
    schema = msgspec.json.schema(DOCUMENTS[file])
    title = f"NoETL evidence: {file}"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
