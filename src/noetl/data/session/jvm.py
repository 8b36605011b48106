"""The Java process of a session of our own.

It lives as long as our end of its standard input is open. That is how it learns of our death: the kernel closes the
pipe of a process that is killed, and Spark ends when it reads the end of the file. So nothing is left behind,
whatever happens to us.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from noetl.data.session.java import Java
from noetl.data.session.refusals import SparkLost, SparkUnavailable
from noetl.units import format_duration

__all__ = ["Gateway", "Jvm"]

_PAUSE = 0.01
_END_SECONDS = 10.0
_TOLD_LINES = 3
_PRIVATE_FILE = 0o600
_NOISE = ("WARNING: Using incubator modules", "Using Spark's default log4j")


class Gateway(NamedTuple):
    """Where a JVM takes calls, and what lets one in. On loopback only."""

    port: int
    secret: str


class Jvm:
    """A running JVM with Spark in it, waiting for calls."""

    def __init__(self, process: subprocess.Popen[bytes], gateway: Gateway) -> None:
        self._process = process
        self.gateway = gateway

    @classmethod
    def launch(
        cls, java: Java, spark: Path, properties: Path, output: Path, *, variables: Mapping[str, str], seconds: float
    ) -> Jvm:
        """Start one and wait until it takes calls. Raises SparkUnavailable with what it said if it does not."""
        told = properties.with_name("gateway")
        command = [
            str(spark / "bin" / "spark-submit"), "--properties-file", str(properties), "--load-spark-defaults",
            "--name", "noetl", "pyspark-shell",
        ]  # fmt: skip
        environment = _environment() | {
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark),
            "SPARK_CONNECT_MODE": "0",
            "PYSPARK_PIN_THREAD": "true",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
            **variables,
        }
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE_FILE)
        begin = os.fstat(handle).st_size
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=handle,
                stderr=handle,
                env=environment,
                start_new_session=True,  # an interrupt at the terminal is for us; we end it when we are done
            )
        finally:
            os.close(handle)
        try:
            cls._await(process, told, seconds, output, begin)
            return cls(process, _read(told))
        except BaseException:
            _end(process, 0.0)
            raise

    @staticmethod
    def _await(process: subprocess.Popen[bytes], told: Path, seconds: float, output: Path, begin: int) -> None:
        deadline = time.monotonic() + seconds
        while not told.exists():
            if process.poll() is not None:
                if process.returncode < 0:
                    raise SparkLost(
                        f"Spark's Java process was ended by signal {-process.returncode} while it started",
                        hint=f"see {output}; signal 9 may be the system's answer to too little memory",
                    )
                raise SparkUnavailable(
                    f"Spark did not start: {_said(output, begin) or f'Java ended with code {process.returncode}'}",
                    hint=f"see {output}",
                )
            if time.monotonic() > deadline:
                raise SparkUnavailable(
                    f"Spark did not start within {format_duration(seconds)}",
                    hint=f"see {output}; raise spark.start if the machine is slow",
                )
            time.sleep(_PAUSE)

    @property
    def pid(self) -> int:
        """The Java process."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so in a moment: a call to it fails a little before that is known."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.is_alive()

    def stop(self) -> None:
        """End it and wait for its end."""
        _end(self._process, _END_SECONDS)


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment() -> dict[str, str]:
    """Ours, without what is meant for NoETL alone: the code of tasks runs in there, and some of that is keys.

    What Spark runs in Python by itself it would run with the first `python3` on PATH, which may know nothing of us.
    """
    unwanted = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("NOETL_") and name not in unwanted}
    return {"PYSPARK_PYTHON": sys.executable} | ours


def _read(told: Path) -> Gateway:
    """As Java wrote it: a number, then a text with its length before it."""
    data = told.read_bytes()
    told.unlink()
    port, length = struct.unpack(">ii", data[:8])
    return Gateway(port, data[8 : 8 + length].decode())


def _said(output: Path, begin: int) -> str:
    """The last lines that are not noise and not the stack of an exception."""
    with output.open("rb") as stream:
        stream.seek(begin)
        lines = stream.read().decode("utf-8", "replace").splitlines()
    told = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", " ", *_NOISE))]
    return "; ".join(told[-_TOLD_LINES:])
