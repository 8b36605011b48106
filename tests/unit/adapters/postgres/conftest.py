"""A real Postgres, and databases that are emptied for each test."""

from __future__ import annotations

from tests.contracts.postgres import made_places, open_database, postgres_database, postgres_server

__all__ = ["made_places", "open_database", "postgres_database", "postgres_server"]
