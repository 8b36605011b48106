"""Running playbooks, against what the same durability costs without an engine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.append import rows_of, write_raw
from benchmarks.harness import Measurement, alternate, workplace
from noetl.runtime.driver import Origin, Request
from noetl.runtime.embedded.runner import open_runner
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings

__all__ = ["hello", "loop", "steps"]

_HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: bench, path: bench}\n"


def steps(count: int = 1000) -> Measurement:
    """A chain of trivial python steps: seconds per step, against one raw durable commit of eight rows."""
    tasks = "".join(
        f'  - step: s{n}\n    tool: {{kind: python, code: "result = {{}}"}}\n'
        + (f"    next: {{arcs: [{{step: s{n + 1}}}]}}\n" if n + 1 < count else "")
        for n in range(count)
    )
    return _compare("steps", f"{_HEAD}workflow:\n{tasks}", count, rows_per_commit=8, rows_per_unit=8)


def loop(count: int = 10_000) -> Measurement:
    """A parallel loop of trivial python iterations: seconds each, against eight raw rows in durable batches of 500."""
    document = (
        f"{_HEAD}workload: {{items: {list(range(count))}}}\nworkflow:\n  - step: each\n"
        '    loop: {in: "{{ items }}", iterator: n, spec: {mode: parallel, max_in_flight: 64}}\n'
        '    tool: {kind: python, input: {n: "{{ n }}"}, code: "result = {\'n\': n}"}\n'
    )
    found = _compare("loop", document, count, rows_per_commit=500, rows_per_unit=8)
    found.detail["iterations_per_second"] = 1 / found.ours
    return found


def hello() -> Measurement:
    """`noetl run examples/01_hello.yaml`, cold, against a Python that does nothing."""
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        command = [sys.executable, "-m", "noetl", "run", "examples/01_hello.yaml", "--home", folder, "--json"]
        return alternate(
            "hello", "s", lambda _: _seconds(command), lambda _: _seconds([sys.executable, "-c", "pass"]), rounds=15
        )


def _compare(bench: str, document: str, count: int, *, rows_per_commit: int, rows_per_unit: int) -> Measurement:
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        place = Path(folder)

        def ours(number: int) -> float:
            return asyncio.run(_run(place / f"home{number}", document)) / count

        def reference(number: int) -> float:
            ledger = place / f"home{number}" / "ledger.db"
            rows = rows_of(ledger)
            written = len(rows["event"]) - 2
            seconds = write_raw(place / f"raw{number}.db", ledger, rows, rows_per_commit)
            return seconds / written * rows_per_unit

        return alternate(bench, "s", ours, reference, detail={"count": count})


async def _run(path: Path, document: str) -> float:
    home = Home(path)
    async with (
        open_embedded(home, Settings(), create=True) as embedded,
        open_runner(embedded, Origin(), directory=path, scratch=path / "scratch", slots=64) as runner,
    ):
        execution_id = await runner.start(Request(document=document))  # reading the document is not a step
        begun = time.perf_counter()
        finished = await runner.wait(execution_id)
        seconds = time.perf_counter() - begun
    if finished.status != "COMPLETED":
        raise SystemExit(f"the run ended {finished.status}: {finished.error}")
    return seconds


def _seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun
