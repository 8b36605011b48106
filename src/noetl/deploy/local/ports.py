"""Ports of this machine that nobody uses."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Iterator

__all__ = ["LOOPBACK", "free_ports", "is_free", "is_listening"]

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether somebody could listen there now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    """Whether somebody answers there."""
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def free_ports(count: int, *, but: Collection[int] = ()) -> list[int]:
    """So many, all different."""
    with contextlib.ExitStack() as held:
        found = _offered(held)
        return [port for port, _ in zip((port for port in found if port not in but), range(count), strict=False)]


def _offered(held: contextlib.ExitStack) -> Iterator[int]:
    while True:  # each stays bound until all are found, or the next one would be the same
        probe = held.enter_context(contextlib.closing(socket.socket()))
        probe.bind((LOOPBACK, 0))
        yield int(probe.getsockname()[1])
