"""NoETL runs data pipelines that can be proven.

A pipeline is a YAML playbook; a small deterministic engine decides what happens next and writes every
decision to an append-only log. From the log alone anyone can rebuild what the system knew at any moment,
and prove by checksum that the rebuilt state is the state that was live.

The rooms, from the foundation up; each imports only rooms to its left:

    errors, settings <- kernel <- ports <- payloads <- replay <- adapters <- runtime <- cli

This module is imported by every one of them and by `noetl --help`, so nothing heavy may enter it.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
