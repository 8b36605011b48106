"""Where a server may listen."""

from __future__ import annotations

import ipaddress

from noetl.errors import InvalidInput
from noetl.settings import Auth

__all__ = ["check_binding", "is_loopback"]

_MOST_PORT = 65535


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(host: str, port: int, auth: Auth) -> None:
    """Refuse a port that is none, and refuse to listen to others without knowing who they are."""
    if port > _MOST_PORT:
        raise InvalidInput(f"server.port: {port} is not a port", hint=f"use one from 1 to {_MOST_PORT}")
    if auth == "none" and not is_loopback(host):
        raise InvalidInput(
            f"without authentication the server listens on a loopback address only, not on {host}",
            hint="add --auth token and make tokens with noetl token create, or use --host 127.0.0.1",
        )
