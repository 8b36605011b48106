"""Evidence of the executions of an installation."""

from __future__ import annotations

from noetl import __version__
from noetl.replay.evidence import EvidenceWriter
from noetl.replay.evidence.artefacts import Adapter
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.wiring import Embedded

__all__ = ["evidence_of"]


def evidence_of(embedded: Embedded) -> EvidenceWriter:
    """Who gives it, for any execution of it."""
    storage = "sqlite" if embedded.settings.ledger.url is None else "postgres"
    return EvidenceWriter(
        embedded.ledger,
        embedded.projections,
        embedded.replayer,
        embedded.verifier,
        embedded.clock,
        adapter=Adapter(name=storage, projector=PROJECTOR),
        version=__version__,
    )
