"""Passing a table from one step to the next, against storing and loading it by hand in the same two steps."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement, workplace
from noetl.runtime.driver import Origin, Request
from noetl.runtime.embedded.runner import open_runner
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings

__all__ = ["pass_table"]

_ROWS = 1_450_000  # of about 36 bytes
_ROUNDS = 9
_WARM_UP = 3

_TABLE = """
import sys, types
import pyarrow as pa, pyarrow.compute as pc, pyarrow.feather as feather
kept = sys.modules.setdefault("bench_table", types.ModuleType("bench_table"))
if not hasattr(kept, "table"):
    numbers = pa.array(range({rows} + 1000), pa.int64())
    amounts = pc.random({rows} + 1000, initializer=7)
    names = pc.binary_join_element_wise("customer-", pc.cast(pc.floor(pc.multiply(amounts, 1e9)), pa.string()), "")
    kept.table = pa.table({{"number": numbers, "amount": amounts, "name": names}})
table = kept.table.slice({round}, {rows})
"""
_MAKE = {
    "ours": "result = table",
    "by_hand": """
import os
feather.write_feather(table, path, compression="zstd")
with open(path, "rb") as file:
    os.fsync(file.fileno())
result = path
""",
    "nothing": "result = None",
}
_READ = {
    "ours": "result = pc.sum(given['number']).as_py()",
    "by_hand": "result = pc.sum(feather.read_table(given)['number']).as_py()",
    "nothing": "result = 0",
}
_PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: bench, path: bench}
workload: {path: ""}
workflow:
  - step: make
    tool: {kind: python, input: {path: "{{ path }}"}, code: "{{ make }}"}
    next: {arcs: [{step: read}]}
  - step: read
    tool: {kind: python, input: {given: "{{ make }}"}, code: "{{ read }}"}
"""


def pass_table() -> Measurement:
    """Two steps: one returns 50 MB, the next adds up a column. By hand the first writes Feather (zstd) and calls fsync,
    and the next reads it. Everything else is the same: the engine, warm processes, and the table, which each process
    has made before. Both figures are whole runs; `nothing` is a run that passes no table, and `added` the ratio of what
    passing the table adds to it.
    """
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        figures = asyncio.run(_measure(Path(folder)))
    ours, by_hand, nothing = (statistics.median(figures[way][_WARM_UP:]) for way in ("ours", "by_hand", "nothing"))
    added = (ours - nothing) / (by_hand - nothing)
    return Measurement(
        bench="pass_table",
        ours=ours,
        reference=by_hand,
        ratio=ours / by_hand,
        unit="s",
        detail={"rows": _ROWS, "nothing": nothing, "added": added, "rounds": figures},
    )


async def _measure(place: Path) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {way: [] for way in _MAKE}
    home = Home(place / "home")
    async with (
        open_embedded(home, Settings(), create=True) as embedded,
        open_runner(embedded, Origin(), directory=place, scratch=place / "scratch", slots=2) as runner,
    ):
        for number in range(_WARM_UP + _ROUNDS):
            for way, taken in figures.items():
                taken.append(await _run(runner, way, number, place / f"by_hand{number}.feather"))
    return figures


async def _run(runner: Any, way: str, number: int, path: Path) -> float:
    table = _TABLE.format(rows=_ROWS, round=number)
    document = _PLAYBOOK.replace('code: "{{ make }}"', f"code_b64: {_base64(table + _MAKE[way])}")
    document = document.replace('code: "{{ read }}"', f"code_b64: {_base64(table + _READ[way])}")
    execution_id = await runner.start(Request(document=document, workload={"path": str(path)}))
    begun = time.perf_counter()
    finished = await runner.wait(execution_id)
    seconds = time.perf_counter() - begun
    if finished.status != "COMPLETED":
        raise SystemExit(f"the run ended {finished.status}: {finished.error}")
    return seconds


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()
