"""Which of a region's 256 logical shards holds an execution, and the streams of a shard.

The hash is part of every stored address, so neither it nor the number of shards can change without
moving data.
"""

from __future__ import annotations

import re

from noetl.errors import InvalidName
from noetl.kernel.names.segments import show

__all__ = [
    "SHARD_COUNT",
    "command_stream",
    "dead_letter_stream",
    "event_stream",
    "fnv1a64",
    "parse_shard",
    "shard_label",
    "shard_of",
]

SHARD_COUNT = 256

_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1
_LABEL = re.compile(r"s[0-9]{4}")
_REGION = re.compile(r"[A-Za-z0-9_-]+")


def fnv1a64(data: bytes) -> int:
    """The 64-bit FNV-1a hash."""
    digest = _OFFSET_BASIS
    for byte in data:
        digest = ((digest ^ byte) * _PRIME) & _MASK
    return digest


def shard_of(tenant: str, project: str, affinity: int | str) -> int:
    """The shard of all that shares an affinity, which is the id of the root execution: a family stays together."""
    return fnv1a64(f"{tenant}\0{project}\0{affinity}".encode()) % SHARD_COUNT


def shard_label(shard: int) -> str:
    """`s0042`, as it stands in stream names, subjects and object keys."""
    if not 0 <= shard < SHARD_COUNT:
        raise InvalidName(f"shard {shard} is outside 0..{SHARD_COUNT - 1}")
    return f"s{shard:04d}"


def parse_shard(label: str) -> int:
    """The number behind a label."""
    if not _LABEL.fullmatch(label) or int(label[1:]) >= SHARD_COUNT:
        raise InvalidName(f"{show(label)} is not a shard label", hint=f"s0000 to {shard_label(SHARD_COUNT - 1)}")
    return int(label[1:])


def event_stream(region: str, shard: int) -> str:
    """The stream of a shard's events."""
    return _stream("EVT", region, shard)


def command_stream(region: str, shard: int) -> str:
    """The stream of a shard's commands."""
    return _stream("CMD", region, shard)


def dead_letter_stream(region: str, shard: int) -> str:
    """The stream of what a shard gave up delivering."""
    return _stream("DLQ", region, shard)


def _stream(kind: str, region: str, shard: int) -> str:
    if not _REGION.fullmatch(region):
        raise InvalidName(f"region {show(region)} cannot stand in a stream name", hint="use letters, digits, - and _")
    return f"NOETL_{kind}_{region}_{shard_label(shard)}"
