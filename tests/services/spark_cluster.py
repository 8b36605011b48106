"""Spark as others run it: a standalone cluster with two workers, and a Connect server, from the package.

Everything is on loopback and dies with its process group.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from noetl.data.session.distribution import spark_home
from noetl.data.session.java import find_java
from tests.services.emulator import free_ports, running, wait_for
from tests.services.quick_java import quick_java

__all__ = ["Cluster", "connect_server", "spark_cluster"]

_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Cluster(NamedTuple):
    """A cluster that takes applications; `logs` has what master and workers say."""

    master: str
    web: str
    logs: Path


@contextmanager
def spark_cluster(root: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """A master and its workers, all of them registered."""

    def master(_: Path, ports: Sequence[int]) -> Sequence[str]:
        name = "org.apache.spark.deploy.master.Master"
        return _class(name, "--host", "127.0.0.1", "--port", f"{ports[0]}", "--webui-port", f"{pages}")

    (pages,) = free_ports(1)
    with ExitStack() as started:
        port, _ = started.enter_context(running(root / "master", master))
        url = f"spark://127.0.0.1:{port}"
        for number in range(workers):

            def worker(directory: Path, ports: Sequence[int]) -> Sequence[str]:
                return _class(
                    "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", f"{ports[0]}",
                    "--cores", f"{cores}", "--memory", memory, "--work-dir", str(directory / "work"), url,
                )  # fmt: skip

            started.enter_context(running(root / f"worker-{number}", worker))
        cluster = Cluster(url, f"http://127.0.0.1:{pages}", root)
        wait_for(lambda: _alive(cluster) == workers, f"no {workers} workers; see {root}")
        yield cluster


@contextmanager
def connect_server(root: Path, *, master: str = "local[2]") -> Iterator[str]:
    """The address of a Spark Connect server."""

    def command(directory: Path, ports: Sequence[int]) -> Sequence[str]:
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": f"{ports[0]}",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(directory / "scratch"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
        chosen = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        submit = str(spark_home() / "bin" / "spark-submit")
        return [*_environment(), submit, "--class", _CONNECT, "--master", master, *chosen, "spark-internal"]

    with running(root / "connect", command) as (port, _):
        yield f"sc://127.0.0.1:{port}"


def _class(name: str, *arguments: str) -> list[str]:
    return [*_environment(), str(spark_home() / "bin" / "spark-class"), name, *arguments]


def _environment() -> list[str]:
    return [
        "env", f"JAVA_HOME={find_java().home}", f"SPARK_HOME={spark_home()}", "SPARK_LOCAL_IP=127.0.0.1",
        f"PYSPARK_PYTHON={sys.executable}", f"PATH={os.environ['PATH']}", "SPARK_DAEMON_MEMORY=512m",
        *(f"{name}={value}" for name, value in quick_java().items()),
    ]  # fmt: skip


def _alive(cluster: Cluster) -> int:
    try:
        with urllib.request.urlopen(f"{cluster.web}/json/", timeout=5) as answer:
            return sum(worker["state"] == "ALIVE" for worker in json.load(answer)["workers"])
    except OSError:
        return 0
