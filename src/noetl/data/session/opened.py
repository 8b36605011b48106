"""A session that runs, of whichever kind: how it is made, what it shares, how it ends."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from noetl import __version__
from noetl.data.session import classic
from noetl.data.session.conf import SessionConf
from noetl.data.session.defaults import launch_settings, properties, stays_here
from noetl.data.session.distribution import need_connect, need_spark, spark_home
from noetl.data.session.executors import check_executors
from noetl.data.session.explaining import explain
from noetl.data.session.java import find_java
from noetl.data.session.jvm import Jvm
from noetl.data.session.refusals import SparkLost, SparkUnavailable
from noetl.data.session.shipping import ship_package
from noetl.data.session.warm import Warm, WarmRecord
from noetl.data.session.workspace import Scratch, Workspace
from noetl.errors import InvalidSetting, NoetlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Difference", "Opened", "SessionInfo", "open_session"]

_log = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_CONNECT_PORT = 15002
_CONNECT_SECONDS = 5.0
_ENDS_SECONDS = 1.0
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_FILES = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is. `own` is a JVM that we have started, `given` one that was there (of a notebook, say), `warm`
    the one that the home keeps, `connect` a server."""

    kind: Literal["own", "given", "warm", "connect"]
    master: str
    spark: str
    ui: str | None = None
    application: str | None = None
    jvm_pid: int | None = None

    @property
    def is_classic(self) -> bool:
        """Whether it has a `sparkContext`, which data stages need."""
        return self.kind != "connect"


class Difference(NamedTuple):
    """A setting that is asked for, and that a session can no longer take."""

    name: str
    have: str | None
    want: str


class Opened:
    """A running session, and what must be given back at its end."""

    def __init__(
        self,
        root: SparkSession,
        info: SessionInfo,
        *,
        scratch: Path,
        ends: contextlib.ExitStack,
        jvm: Jvm | None = None,
    ) -> None:
        self.root = root
        self.info = info
        self.scratch = scratch
        self.jvm = jvm
        self._ends = ends
        self._children: weakref.WeakSet[SparkSession] = weakref.WeakSet()

    def is_dead(self) -> bool:
        """Whether it has ended without being asked to. A server elsewhere is not asked."""
        if self.jvm is not None and not self.jvm.is_alive():
            return True
        return self.info.is_classic and classic.is_stopped(self.root)

    def ends_within(self, seconds: float) -> bool:
        """The same for one whose call has just failed, which may come before its end is known."""
        if self.jvm is not None and self.jvm.ends_within(seconds):
            return True
        return self.is_dead()

    def has(self, session: SparkSession) -> bool:
        """Whether a session was made here."""
        return session in self._children

    def first_difference(self, wanted: SessionConf) -> Difference | None:
        """What `wanted` asks for and this session cannot give, or None."""
        return _first_difference(self.root, self.info, wanted)

    def new_session(self, conf: SessionConf) -> SparkSession:
        """A session with temporary views and SQL settings of its own."""
        session = self.root.newSession()
        for name, value in conf.conf.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        self._children.add(session)
        return session

    def release(self, session: SparkSession) -> None:
        """Forget a session that nobody needs any more. A server keeps it until it is told; this process does not."""
        self._children.discard(session)
        if not self.info.is_classic:
            session.stop()

    def close(self) -> None:
        """Give everything back. Only the first call does."""
        for session in list(self._children):
            self.release(session)
        self._ends.close()


def open_session(conf: SessionConf, home: Path, *, attach: bool) -> Opened:
    """The one that a URL names; else one that this process has already; else the warm session of the home, if that
    is wanted and it fits; else our own."""
    with contextlib.ExitStack() as ends:
        scratch = Workspace(home).open()
        ends.callback(scratch.close)
        jvm = None
        if conf.remote is not None:
            root, info = _connect(conf.remote, ends)
        else:
            need_spark()
            given = classic.given() if "pyspark.sql" in sys.modules else None
            if given is not None:
                root, info = given, _describe(given, SessionInfo(kind="given", master=conf.master, spark=given.version))
            elif attach and (found := _attach(conf, home, ends)) is not None:
                root, info = found
            else:
                jvm = _launch(conf, scratch)
                ends.callback(jvm.stop)
                root, info = _start(conf, jvm, scratch, ends)
        classic.quieten()
        return Opened(root, info, scratch=scratch.path, ends=ends.pop_all(), jvm=jvm)


# --- Of our own -------------------------------------------------------------------------------------------


def _launch(conf: SessionConf, scratch: Scratch) -> Jvm:
    java, spark = find_java(), spark_home()
    workspace = scratch.workspace
    settings = launch_settings(conf, workspace.root, scratch.logging(), scratch.path)
    variables = {"SPARK_LOCAL_IP": _LOOPBACK} if stays_here(conf.master) else {}
    if "spark.local.dir" not in settings and "SPARK_LOCAL_DIRS" not in os.environ:
        variables["SPARK_LOCAL_DIRS"] = str(scratch.path)  # of the driver alone; executors have theirs
    # Java takes longer to start than Python to import what talks to it, so one is done while waiting for the other.
    threading.Thread(target=importlib.import_module, args=("pyspark.sql",), daemon=True).start()
    return Jvm.launch(
        java,
        spark,
        scratch.write("spark.properties", properties(settings)),
        workspace.output,
        variables=variables,
        seconds=conf.start,
    )


def _start(
    conf: SessionConf, jvm: Jvm, scratch: Scratch, ends: contextlib.ExitStack
) -> tuple[SparkSession, SessionInfo]:
    log = scratch.workspace.log
    try:
        root = classic.start(jvm.gateway)
        ends.callback(classic.stop, root)
        if not conf.is_local:
            ship_package(root, scratch.path)
            check_executors(root, conf.start)
        return root, _describe(root, SessionInfo(kind="own", master=conf.master, spark=root.version, jvm_pid=jvm.pid))
    except NoetlError:
        raise
    except Exception as error:
        message, detail = explain(error)
        _log.error("Spark did not start on %s: %s", conf.master, detail)
        if jvm.ends_within(_ENDS_SECONDS):
            raise SparkLost(
                f"Spark's Java process ended while it started on {conf.master}", hint=f"see {log}"
            ) from error
        raise SparkUnavailable(f"Spark did not start on {conf.master}: {message}", hint=f"see {log}") from error


def _describe(root: SparkSession, info: SessionInfo) -> SessionInfo:
    context = root.sparkContext
    return msgspec.structs.replace(info, ui=context.uiWebUrl, application=context.applicationId)


# --- Kept warm --------------------------------------------------------------------------------------------


def _attach(conf: SessionConf, home: Path, ends: contextlib.ExitStack) -> tuple[SparkSession, SessionInfo] | None:
    """The warm session of the home; None if there is none or it cannot be used, and then the log says why."""
    warm = Warm(home)
    record = warm.find()
    if record is None:
        return None
    reason: object = _unfit(record, conf)
    if reason is None:
        with contextlib.ExitStack() as mine:
            mine.enter_context(warm.used())
            try:
                root = classic.attach(record.gateway)
            except Exception as error:  # it may die at any moment; then we start our own
                reason = explain(error).message
            else:
                mine.callback(classic.leave, root)
                info = SessionInfo(kind="warm", master=record.master, spark=record.spark, jvm_pid=record.jvm_pid)
                reason = _first_difference(root, info, conf)
                if reason is None:
                    ends.enter_context(mine.pop_all())
                    return root, _describe(root, info)
    _log.warning("the warm Spark session is not used: %s", reason)
    return None


def _unfit(record: WarmRecord, conf: SessionConf) -> str | None:
    if record.master != conf.master:
        return f"it runs on {record.master}, and {conf.master} is asked for"
    if (record.spark, record.noetl) != (need_spark(), __version__):
        return (
            f"it was started by NoETL {record.noetl} with Spark {record.spark}; restart it with noetl spark stop, start"
        )
    return None


def _first_difference(root: SparkSession, info: SessionInfo, wanted: SessionConf) -> Difference | None:
    """A setting may differ if it is the same or if every session can have its own; all others are fixed."""
    place = wanted.remote or wanted.master
    if place != info.master:
        return Difference("spark.remote" if wanted.remote else "spark.master", info.master, place)
    started = dict(root.sparkContext.getConf().getAll()) if info.is_classic else {}
    for name, value in wanted.conf.items():
        if not _is_same(name, started.get(name), value) and not root.conf.isModifiable(name):
            return Difference(name, started.get(name), value)
    return None


def _is_same(name: str, have: str | None, want: str) -> bool:
    """Spark and we put options of our own before those that somebody has chosen for a JVM, and Spark writes the names
    of local files as addresses."""
    if have is not None and name.endswith(".extraJavaOptions"):
        return have == want or have.endswith(f" {want.strip()}")
    if have is not None and name in _FILES:
        return _as_addresses(have) == _as_addresses(want)
    return have == want


def _as_addresses(files: str) -> list[str]:
    return [file if ":/" in file else f"file://{Path(file).absolute()}" for file in files.split(",") if file]


# --- Elsewhere --------------------------------------------------------------------------------------------


def _connect(url: str, ends: contextlib.ExitStack) -> tuple[SparkSession, SessionInfo]:
    version = need_connect()
    _check_listening(url)
    from pyspark.sql import SparkSession

    try:
        root = SparkSession.builder.remote(url).getOrCreate()
        ends.callback(os.environ.pop, _CONNECT_MODE, None)  # PySpark sets it, and with it refuses all other sessions
        ends.callback(root.stop)
        version = root.version
    except Exception as error:
        raise SparkUnavailable(
            f"the Spark Connect server at {url} cannot be used: {explain(error).message}", hint="check spark.remote"
        ) from error
    return root, SessionInfo(kind="connect", master=url, spark=version)


def _check_listening(url: str) -> None:
    """PySpark tries for many minutes; that nobody listens is known at once."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "sc" or not parts.hostname:
            raise ValueError(url)
        port = parts.port or _CONNECT_PORT
    except ValueError:
        raise InvalidSetting(
            f"spark.remote: '{url}' is not the address of a Spark Connect server", hint="write it as sc://host:15002"
        ) from None
    try:
        socket.create_connection((parts.hostname, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise SparkUnavailable(
            f"no Spark Connect server answers at {url}: {error}", hint="start it, or correct spark.remote"
        ) from error
