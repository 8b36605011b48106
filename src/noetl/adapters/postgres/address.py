"""Where a database is, and how to say so to people and in logs: never with a password."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from noetl.errors import InvalidSetting

__all__ = ["Address"]

_LOCAL = "the local socket"


class Address:
    """What libpq needs to connect. `PGPASSWORD`, a password file and a service file count as they do for psql."""

    def __init__(self, url: str) -> None:
        try:
            self._parts: dict[str, Any] = conninfo_to_dict(url)
        except psycopg.Error as error:
            # What libpq says may quote the text, and with it a password.
            raise InvalidSetting(
                "the address of the database cannot be read",
                hint="write it as postgresql://user:password@host:5432/database, or as host=... dbname=...",
            ) from (None if "@" in url or "password" in url else error)
        self.name = f"postgresql://{self._parts.get('host') or _LOCAL}{self._port()}/{self._database()}"

    def __str__(self) -> str:
        return self.name

    def conninfo(self, *, connect_seconds: float, lost_seconds: float) -> str:
        """The whole of it for libpq, with what finds out that the other side is gone, unless it says so itself."""
        defaults: dict[str, Any] = {
            "connect_timeout": max(2, round(connect_seconds)),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(lost_seconds * 1000),
            "application_name": "noetl",
        }
        return make_conninfo("", **(defaults | self._parts))

    def _port(self) -> str:
        return f":{self._parts['port']}" if self._parts.get("port") else ""

    def _database(self) -> str:
        return str(self._parts.get("dbname") or self._parts.get("user") or "")
