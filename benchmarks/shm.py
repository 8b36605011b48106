"""Opening a table that another process has shared, against reading and decoding its file."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa

from benchmarks.harness import Measurement, alternate, settle, workplace
from noetl.kernel.event import IpcHint, PayloadRef
from noetl.payloads.formats import feather_pieces, table_in
from noetl.payloads.shm import ROOT, Segments
from noetl.runtime.clock import SystemClock

__all__ = ["shm"]

_MB = 1_000_000
_ROUNDS = 15
_SMALL, _USUAL, _LARGE = 10, 100, 500


def shm() -> Measurement:
    """100 MB, from another process's memory and from a Feather file that the page cache holds; 10 MB against 500 MB."""
    with tempfile.TemporaryDirectory(dir=workplace()) as folder, tempfile.TemporaryDirectory(dir=ROOT) as shared:
        file = Path(folder) / "table.feather"
        with _shared(Path(shared), file) as hints:
            segments = Segments(SystemClock(), node_id="here", root=Path(shared))
            opened = {size: _medians(segments, hint) for size, hint in hints.items()}
            settle()
            detail = {
                "file_mb": file.stat().st_size / _MB,
                "open_seconds": {f"{size} MB": seconds for size, seconds in opened.items()},
                "large_to_small": opened[_LARGE] / opened[_SMALL],
            }
            return alternate(
                "shm",
                "s",
                lambda _: _open(segments, hints[_USUAL]),
                lambda _: _decode(file),
                rounds=_ROUNDS,
                detail=detail,
            )


def _open(segments: Segments, hint: IpcHint) -> float:
    sha256 = hint.shm_name.rpartition("-")[2]
    ref = PayloadRef(uri="noetl://b/b", sha256=sha256, media_type="application/octet-stream", bytes=0, ipc=hint)
    begun = time.perf_counter()
    table = segments.get(ref)
    seconds = time.perf_counter() - begun
    assert isinstance(table, pa.Table)
    return seconds


def _decode(file: Path) -> float:
    begun = time.perf_counter()
    table = table_in(file.read_bytes())
    seconds = time.perf_counter() - begun
    assert table.num_rows
    return seconds


def _medians(segments: Segments, hint: IpcHint) -> float:
    _open(segments, hint)
    return statistics.median(_open(segments, hint) for _ in range(4 * _ROUNDS))


@contextmanager
def _shared(root: Path, file: Path) -> Iterator[dict[int, IpcHint]]:
    """Tables of three sizes that a process of its own keeps in shared memory."""
    command = [sys.executable, "-m", "benchmarks.shm", str(root), str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        assert producer.stdin is not None
        hints = msgspec.json.decode(producer.stdout.readline(), type=dict[int, IpcHint])
        try:
            yield hints
        finally:
            producer.stdin.close()


def table_of_bytes(size: int) -> pa.Table:
    """Ids, amounts and names, so many that they fill `size` bytes."""
    rows = size // 32
    ids = pa.array(range(rows), pa.int64())
    amounts = pa.array([number * 0.25 for number in range(1000)] * (rows // 1000 + 1), pa.float64())[:rows]
    names = pa.array([f"name-{number % 977:07}" for number in range(rows)])
    return pa.table({"id": ids, "amount": amounts, "name": names})


def _produce(root: Path, file: Path) -> None:
    segments = Segments.open(SystemClock(), node_id="here", budget_bytes=2000 * _MB, root=root)
    hints = {}
    for size in (_SMALL, _USUAL, _LARGE):
        table = table_of_bytes(size * _MB)
        hints[size] = segments.put(f"{size:064x}", table)
        if size == _USUAL:
            with file.open("wb") as target:
                target.writelines(feather_pieces(table))
    print(msgspec.json.encode(hints).decode(), flush=True)
    sys.stdin.read()
    segments.close()


if __name__ == "__main__":
    _produce(Path(sys.argv[1]), Path(sys.argv[2]))
