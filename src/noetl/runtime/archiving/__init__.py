"""Archiving: from the ledger into bundles, and back.

`places` knows the store, `families` who belongs to one bundle, `archiver` makes one, `sweep` finds what is still to be
archived, `restoring` brings one back.
"""

from __future__ import annotations

from noetl.runtime.archiving.archiver import Archived, Archiver, open_archiver

__all__ = ["Archived", "Archiver", "open_archiver"]
