"""Writing payloads to disk, against plain files that are synced and hashed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.harness import Measurement, alternate, workplace
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.payloads.store import PayloadStore

__all__ = ["payload_write"]

_MB = 1_000_000
_PAYLOADS = 12
_PAYLOAD_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_ROUNDS = 7


def payload_write() -> Measurement:
    """Payloads of 8 MiB through PayloadStore; the reference hashes each, writes it to a file and calls fsync."""
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        place = Path(folder)
        measured = alternate(
            "payload_write",
            "MB/s",
            lambda number: _rate(asyncio.run(_store(place / f"ours{number}", stream=False))),
            lambda number: _rate(_plain(place / f"plain{number}")),
            rounds=_ROUNDS,
            detail={"payloads": _PAYLOADS, "payload_bytes": _PAYLOAD_BYTES},
        )
        streamed = _rate(asyncio.run(_store(place / "streamed", stream=True)))
        measured.detail["streamed_mb_per_second"] = streamed
        return measured


def _rate(seconds: float) -> float:
    return _PAYLOADS * _PAYLOAD_BYTES / _MB / seconds


def _contents() -> list[bytes]:
    """Other bytes in each round, so that nothing is known already."""
    return [os.urandom(_PAYLOAD_BYTES) for _ in range(_PAYLOADS)]


async def _store(root: Path, *, stream: bool) -> float:
    store = PayloadStore(await FilesystemObjectStore.open(root), "bench", "bench", spool_directory=root.parent)
    contents = _contents()
    begun = time.perf_counter()
    for content in contents:
        await store.store(_pieces(content) if stream else content, media_type="application/octet-stream")
    return time.perf_counter() - begun


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]


def _plain(root: Path) -> float:
    root.mkdir()
    contents = _contents()
    begun = time.perf_counter()
    for content in contents:
        path = root / hashlib.sha256(content).hexdigest()
        with path.open("wb", buffering=0) as file:
            file.write(content)
            os.fsync(file.fileno())
    return time.perf_counter() - begun
