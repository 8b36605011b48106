"""All seeded bugs."""

from __future__ import annotations

from tests.simulation.mutants import appending, deriving, proving

__all__ = ["MUTANTS"]

MUTANTS = (*appending.MUTANTS, *deriving.MUTANTS, *proving.MUTANTS)
