"""Fifty thousand iterations: memory must not grow with those that have finished."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """
import asyncio, json, resource, sys
from pathlib import Path
from typing import Any

from noetl.runtime.driver import Origin, Request
from noetl.runtime.embedded.runner import open_runner
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings
from noetl.tools.registry import Registry
from tests.unit.runtime.workshop import FunctionTool, as_text, book, step

count, place = int(sys.argv[1]), Path(sys.argv[2])
each = {"in": "{{ range(%d) | list }}" % count, "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 64}}
document = book(
    step("each", loop=each, give={"n": "{{ n }}"}, next={"arcs": [
        {"step": "last", "when": "{{ each.stats.failed == 0 }}"}]}),
    step("last", give={"count": "{{ each.count }}"}),
)
tool = FunctionTool("python", lambda call: {"text": "x" * 400, **call.input})


async def main():
    registry = Registry({"python": tool})
    async with (
        open_embedded(Home(place), Settings(), create=True) as embedded,
        open_runner(embedded, Origin(), directory=place, scratch=place, slots=64, registry=registry) as runner,
    ):
        finished = await runner.wait(await runner.start(Request(document=as_text(document))))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"status": finished.status, "count": finished.result["count"], "peak": peak}))


asyncio.run(main())
"""
ALLOWED = 20  # MiB; kept in memory, the results alone would be more than 50


def run(count: int, place: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(count), str(place)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_memory_does_not_grow_with_finished_iterations(tmp_path: Path) -> None:
    few, many = run(5_000, tmp_path / "few"), run(50_000, tmp_path / "many")
    assert (few["status"], few["count"]) == ("COMPLETED", 5_000)
    assert (many["status"], many["count"]) == ("COMPLETED", 50_000)
    assert many["peak"] - few["peak"] < ALLOWED, (few, many)
