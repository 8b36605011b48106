"""Evidence of the executions of an installation."""

from __future__ import annotations

import os

from noetl import __version__
from noetl.replay.evidence import EvidenceWriter
from noetl.replay.evidence.artefacts import Adapter
from noetl.runtime.home import Home
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.wiring import Embedded
from noetl.tools.secrets.signing import Signer, load_signer
from noetl.tools.secrets.wallet import archive_keys

__all__ = ["evidence_of", "signer_of"]


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


async def signer_of(home: Home) -> Signer:
    """Who signs for a home: the key of its archives, which is made if there is none."""
    return await load_signer(archive_keys(home.wallet, os.environ))
