"""Repair: every object that the log refers to is looked at, and what is missing or damaged is brought back.

Bytes are accepted from anywhere, because none are trusted: what does not have the digest that the log has is not what
was lost. What no source can give is reported with its coordinates, and nothing is put in its place.
"""

from __future__ import annotations

__all__: list[str] = []
