"""Collection of garbage: what lies in the store and is provably nobody's any more.

The log says what is alive. An object goes only if no event that is in the ledger when it goes names it, if nothing
that is alive and stored names it, and if it has been there for longer than the grace, so that whoever has written it
has long since committed, or never will.
"""

from __future__ import annotations

__all__: list[str] = []
