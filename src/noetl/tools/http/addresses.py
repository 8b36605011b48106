"""Where a request may not go: addresses that give out a machine's own identity to whoever asks from it."""

from __future__ import annotations

import errno
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

__all__ = ["BlockedAddress", "is_blocked_address", "is_blocked_host"]

_NETWORKS = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",  # link-local, and the metadata of AWS, Azure, GCP and others
        "fe80::/10",  # link-local
        "fd00:ec2::/32",  # metadata, AWS
        "fd20:ce::254/128",  # metadata, GCP
        "100.100.100.200/32",  # metadata, Alibaba
        "168.63.129.16/32",  # the platform's agent, Azure
        "192.0.0.192/32",  # metadata, Oracle
    )
)
_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
_NAT64 = ip_network("64:ff9b::/96")


class BlockedAddress(OSError):
    """Raised instead of opening a connection. Its text is always the same, so that many addresses give one error."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "link-local and metadata addresses are blocked")


def is_blocked_host(host: str) -> bool:
    """Whether the name itself stands for a metadata service, whatever it resolves to."""
    return host.rstrip(".").lower() in _NAMES


def is_blocked_address(text: str) -> bool:
    """Whether an address is link-local or a metadata service, also when written inside another."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return True  # what we cannot read we do not connect to
    return any(form in network for form in _forms(found) for network in _NETWORKS if form.version == network.version)


def _forms(found: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    if isinstance(found, IPv4Address):
        return [found]
    inner = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    if found in _NAT64 or int(found) >> 32 == 0:
        inner.append(IPv4Address(int(found) & 0xFFFFFFFF))
    return [found, *(form for form in inner if form is not None)]
