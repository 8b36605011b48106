"""A classic session over a JVM that takes calls: our own, or one that somebody keeps warm.

PySpark starts its JVM itself, lets it write to the terminal, and keeps it until the interpreter ends. We start it
(`jvm`) and hand PySpark the connection, so all names of PySpark's that are not public are used in this module.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from noetl.data.session.jvm import Gateway

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["attach", "given", "is_stopped", "leave", "quieten", "start", "stop"]

_PYTHON = "spark.pyspark.python"
# What PySpark expects to find by its short name, as its own `launch_gateway` imports it.
_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)


def quieten() -> None:
    """Let what PySpark would print go by: errors are told by `explain`, and connections close without a word."""
    import logging

    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs it also raises


def start(gateway: Gateway) -> SparkSession:
    """Start Spark in a JVM that has just come up. Its settings are those that the JVM was launched with."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with _forgotten_if_it_fails():
        client = _connect(gateway)
        context = SparkContext(conf=SparkConf(_jvm=client.jvm), gateway=client)
        _settle(context)
        return SparkSession(context)


def given() -> SparkSession | None:
    """The session that somebody else has started in this process, or None."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context  # noqa: SLF001 - the public way would start one
    return SparkSession(context) if context is not None else None


def attach(gateway: Gateway) -> SparkSession:
    """Use the Spark that runs in somebody else's JVM."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with _forgotten_if_it_fails():
        client = _connect(gateway)
        java: Any = client.jvm.org.apache.spark
        running = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
        context = SparkContext(conf=SparkConf(_jconf=running.sc().conf()), gateway=client, jsc=running)
        _settle(context)
        return SparkSession(context)


def leave(session: SparkSession) -> None:
    """Forget a session that goes on without us."""
    context = session.sparkContext
    _end_updates(context)
    context._jsc = None  # noqa: SLF001 - so that stopping does not reach it
    context.stop()
    _forget()


def stop(session: SparkSession) -> None:
    """End Spark, in a JVM that may be dead already."""
    from py4j.protocol import Py4JError

    context = session.sparkContext
    ending = _end_updates(context)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of a JVM that is gone: that is what we want
            context.stop()
    except (Py4JError, OSError):
        context._jsc = None  # noqa: SLF001 - there is nobody to tell; what is on this side is still to be ended
        context.stop()
    ending.join()
    _forget()


def is_stopped(session: SparkSession) -> bool:
    """Whether Spark in there has ended, by itself or because its JVM has."""
    from py4j.protocol import Py4JError

    inner: Any = session.sparkContext._jsc  # noqa: SLF001 - the public API does not tell
    try:
        return inner is None or bool(inner.sc().isStopped())
    except (Py4JError, OSError):
        return True


def _connect(gateway: Gateway) -> Any:
    """The connection as PySpark makes it: each thread of ours has a thread of its own in the JVM."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import java_import

    client = ClientServer(
        java_parameters=JavaParameters(port=gateway.port, auth_token=gateway.secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    client.proc = None
    for name in _IMPORTS:
        java_import(client.jvm, name)
    return client


def _end_updates(context: SparkContext) -> threading.Thread:
    """Let the server for accumulators end beside us: it looks only twice a second whether it should."""
    server: Any = context._accumulatorServer  # noqa: SLF001
    context._accumulatorServer = None  # type: ignore[assignment]  # noqa: SLF001
    ending = threading.Thread(target=lambda: None if server is None else server.shutdown(), daemon=True)
    ending.start()  # somebody else in this process may have ended Spark already
    return ending


def _settle(context: SparkContext) -> None:
    """Workers run this interpreter, unless somebody has chosen another: the first one on PATH has other packages.
    And that a JVM hangs up is no news for the terminal."""
    chosen = context.getConf().get(_PYTHON) or os.environ.get("PYSPARK_PYTHON")
    context.pythonExec = chosen or sys.executable
    updates: Any = context._accumulatorServer  # noqa: SLF001
    updates.handle_error = lambda *_: None


@contextlib.contextmanager
def _forgotten_if_it_fails() -> Iterator[None]:
    try:
        yield
    except BaseException:
        _drop_context()
        _forget()
        raise


def _drop_context() -> None:
    """One that was made before its JVM ended: PySpark would take it for a session that somebody else has started."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context  # noqa: SLF001
    if context is not None:
        ending = _end_updates(context)
        context._jsc = None  # noqa: SLF001 - there is nobody to tell
        context.stop()
        ending.join()


def _forget() -> None:
    """Take the process back to where it was before: PySpark keeps one session and one JVM for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    client: Any = SparkContext._gateway  # noqa: SLF001
    if client is not None:
        _hang_up(client)
        client.close(keep_callback_server=True)
        client.shutdown_callback_server()
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
    SparkSession._activeSession = None  # noqa: SLF001


def _hang_up(client: Any) -> None:
    """End all connections. A thread of ours reads those that the JVM has called us on, for each batch of a stream
    say, and closing one of them would wait for it for ever."""
    called = getattr(client._callback_server, "connections", ())  # noqa: SLF001
    for connection in [*client._gateway_client.deque, *called]:  # noqa: SLF001
        with contextlib.suppress(OSError, AttributeError):  # it has ended already
            connection.socket.shutdown(socket.SHUT_RDWR)
