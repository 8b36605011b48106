"""The process that keeps a Spark session warm for the runs of a home, until it is told to end."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from noetl import __version__
from noetl.data.session.conf import SessionConf
from noetl.data.session.opened import Opened, open_session
from noetl.data.session.refusals import SparkUnavailable
from noetl.data.session.warm import Warm, WarmRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["keep_warm"]

_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


def keep_warm(home: Path, conf: SessionConf, ready: Callable[[WarmRecord], None]) -> None:
    """Start Spark, say where it takes calls, and wait for SIGTERM, or for the home to be deleted.

    The jobs of a user that is killed are cancelled.

    Raises SparkUnavailable if Spark does not start, or ends before it is asked to.
    """
    ended = threading.Event()

    def end(_: int, __: FrameType | None) -> None:
        ended.set()

    warm = Warm(home)
    with warm.held():
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, end)
        opened = open_session(conf, home, attach=False)
        try:
            _warm_up(opened)
            record = _record(opened, conf)
            warm.announce(record)
            ready(record)
            while not ended.wait(_LOOK_SECONDS):
                if opened.is_dead():
                    raise SparkUnavailable("Spark has ended by itself", hint=f"see {home / 'logs' / 'spark.log'}")
                if not warm.is_held():  # the home was deleted: nobody can find us any more
                    break
                _cancel_orphans(warm, opened)
        finally:
            opened.close()


def _warm_up(opened: Opened) -> None:
    """The first query and the first Python worker take seconds, which are better spent before somebody waits."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    opened.root.range(2).mapInArrow(same, "id long").groupBy("id").count().toArrow()


def _record(opened: Opened, conf: SessionConf) -> WarmRecord:
    assert opened.jvm is not None
    return WarmRecord(
        pid=os.getpid(),
        jvm_pid=opened.jvm.pid,
        port=opened.jvm.gateway.port,
        secret=opened.jvm.gateway.secret,
        master=conf.master,
        conf=conf.conf,
        started_at=datetime.now(UTC).isoformat(),
        spark=opened.info.spark,
        noetl=__version__,
        ui=opened.info.ui,
    )


def _cancel_orphans(warm: Warm, opened: Opened) -> None:
    for tag in warm.take_dead_users():
        _log.warning("a process that used the session has died; its jobs (%s) are cancelled", tag)
        opened.root.sparkContext.cancelJobsWithTag(tag)
