"""Evidence of a run: what the log says, what the live rows say, that they agree, and how all that was found out.

Evidence is a directory that proves itself. `EvidenceWriter` writes it where the run is; `check_evidence` verifies all
of it again anywhere, with no database, no home and no key. Nothing that needs one of them may enter the check.
"""

from noetl.replay.evidence.check import Checked, check_evidence
from noetl.replay.evidence.findings import Finding
from noetl.replay.evidence.writer import EvidenceWriter, Given

__all__ = ["Checked", "EvidenceWriter", "Finding", "Given", "check_evidence"]
