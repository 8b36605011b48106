"""Processes with Spark in them, which say what they find as lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["PROLOGUE", "process", "run", "told"]

PROLOGUE = """
import asyncio, json, os, signal, sys, threading
from pathlib import Path
from noetl.data.session import SessionConf, SparkSessions, explain, run_job, running
HOME = Path(sys.argv[1])
def conf(master="local[2]", **settings):
    return SessionConf(master=master, conf={"spark.driver.memory": "512m", **settings}, ui=False)
def say(**what):
    print(json.dumps(what), flush=True)
def same(batches):
    yield from batches
"""


@contextmanager
def process(home: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    """A process with Spark in it, which says what it finds as lines of JSON."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROLOGUE + textwrap.dedent(code), str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def told(started: subprocess.Popen[str]) -> dict[str, Any]:
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line, f"it ended with {started.wait()}"
    document: dict[str, Any] = json.loads(line)
    return document


def run(home: Path, code: str) -> dict[str, Any]:
    with process(home, code) as started:
        document = told(started)
        assert started.wait(60) == 0
        return document
