"""Are the executors of a cluster able to run our tasks? Asked once, before the first job does it the hard way."""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from noetl.data.session.explaining import Explained, explain
from noetl.data.session.jobs import running
from noetl.data.session.refusals import SparkUnavailable
from noetl.units import format_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NEEDED", "check_executors"]

NEEDED = ("msgspec", "uvloop", "zstandard", "pyarrow", "pandas", "noetl")
_ADVICE = (
    "set spark.pyspark.python (or PYSPARK_PYTHON) to an interpreter that every executor has, of the same version, "
    'with the packages of pip install "noetl[spark]"'
)


def check_executors(session: SparkSession, seconds: float, needed: Sequence[str] = NEEDED) -> None:
    """Raises SparkUnavailable, naming the machine, if Python there is missing, another or without packages, and if
    nobody takes work for so long."""
    context = session.sparkContext
    with running(session, "noetl-check", "Can executors run our tasks?") as job:
        alarm = threading.Timer(seconds, job.cancel)
        alarm.daemon = True
        alarm.start()
        try:
            slots = max(context.defaultParallelism, 1)
            answers = context.parallelize(range(slots), slots).mapPartitions(functools.partial(_look, needed)).collect()
        except Exception as error:
            if job.cancelled:
                raise SparkUnavailable(
                    f"no executor of {context.master} took work within {format_duration(seconds)}",
                    hint="see whether it has workers with free cores and memory; spark.start is how long to wait",
                ) from error
            raise SparkUnavailable(_reason(explain(error), context.pythonExec), hint=_ADVICE) from error
        finally:
            alarm.cancel()
    for machine, missing in answers:
        if missing:
            raise SparkUnavailable(
                f"the executor on {machine} has no {', '.join(missing)} for its Python", hint=_ADVICE
            )


def _look(needed: Sequence[str], _: object) -> list[tuple[str, list[str]]]:
    """Runs there."""
    import importlib.util
    import socket

    return [(socket.gethostname(), [name for name in needed if importlib.util.find_spec(name) is None])]


def _reason(told: Explained, program: str) -> str:
    message, detail = told
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found := re.search(r"PYTHON_VERSION_MISMATCH\D+?(\d+\.\d+)", message + detail):
        return f"executors run Python {found[1]}, and this process is Python {wanted}: functions cannot be carried over"
    if re.search(r"Cannot run program", detail):
        return f"executors cannot run '{program}', the Python of this process"
    return f"executors cannot run Python: {message}"
