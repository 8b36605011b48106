"""Ports that nobody uses."""

from __future__ import annotations

import socket

from noetl.deploy.local.ports import LOOPBACK, free_ports, is_free, is_listening


def test_ports_are_all_different_and_free() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(is_free(port) for port in ports)


def test_a_port_that_is_wanted_by_others_is_left_alone() -> None:
    first = free_ports(1)
    assert first[0] not in free_ports(3, but=first)


def test_somebody_who_listens_is_seen() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert is_listening(port)
    assert not is_listening(port)
