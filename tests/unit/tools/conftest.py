"""Services that tools talk to."""

from __future__ import annotations

from tests.services.postgres import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]
