"""Spark jobs that can be stopped: what runs in a block carries a tag, and by the tag it is cancelled.

Spark calls block, so they run in threads; each thread of ours is a thread of its own in the JVM, and tags belong
to it. Cancelling comes from another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from noetl.data.session.variables import with_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Running", "is_classic", "process_tag", "run_job", "running"]

T = TypeVar("T")

_PATIENCE = 10.0
_log = logging.getLogger(__name__)


def is_classic(session: SparkSession) -> bool:
    """Whether a session has a `sparkContext`. One of Spark Connect has none."""
    return not type(session).__module__.startswith("pyspark.sql.connect")


@functools.cache
def process_tag() -> str:
    """On every job of this process, so that whoever keeps a session warm can stop the jobs of a process that died."""
    return f"noetl-process-{os.getpid()}-{secrets.token_hex(6)}"


class Running:
    """The jobs of one block. `cancel` may come from any thread, at any time, more than once."""

    def __init__(self, session: SparkSession, tag: str) -> None:
        self._session = session
        self.tag = tag
        self.cancelled = False

    def cancel(self) -> None:
        """Stop what runs; what has not begun will not. Blocks for a few milliseconds."""
        self.cancelled = True
        if is_classic(self._session):
            inner: Any = self._session.sparkContext._jsc  # noqa: SLF001 - Python has no name for future jobs
            if inner is not None:
                inner.sc().cancelJobGroupAndFutureJobs(self.tag)
        else:
            self._session.interruptTag(self.tag)


@contextlib.contextmanager
def running(session: SparkSession, tag: str, description: str = "") -> Iterator[Running]:
    """Mark the Spark jobs that this thread starts in the block, so that they can be cancelled together, and let them
    have the modules that were carried for the session.

    `tag` is what they are called in Spark's own pages; a suffix makes each block's unique. Blocks do not nest.
    """
    name = f"{tag}-{secrets.token_hex(4)}"
    job = Running(session, name)
    if not is_classic(session):
        session.addTag(name)
        try:
            yield job
        finally:
            session.removeTag(name)
        return
    context = session.sparkContext
    context.setJobGroup(name, description or tag, interruptOnCancel=True)
    context.addJobTag(process_tag())
    try:
        with with_variables(session):
            yield job
    finally:
        with contextlib.suppress(Exception):  # a JVM that is gone has nothing to be taken back
            context.removeJobTag(process_tag())
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
            context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
            context.setLocalProperty("spark.job.interruptOnCancel", None)  # type: ignore[arg-type]


async def run_job(session: SparkSession, tag: str, work: Callable[[], T], *, description: str = "") -> T:
    """Run `work` in a thread of its own, with its Spark jobs marked.

    When the caller is cancelled so are the jobs, at once, and `work` has ended before the cancellation goes on. Only
    Python code of `work` that goes on for long without Spark is left behind, with a line in the log.
    """
    begun: Future[Running] = Future()
    done: Future[T] = Future()

    def body() -> None:
        try:
            with running(session, tag, description) as job:
                begun.set_result(job)
                result = work()
        except BaseException as error:
            if not begun.done():
                begun.set_exception(error)
            done.set_exception(error)
        else:
            done.set_result(result)

    # A thread for one job only: one of a pool would bring along what the JVM's thread remembers of the last.
    threading.Thread(target=body, name=f"spark-{tag}", daemon=True).start()
    outcome = asyncio.wrap_future(done)
    outcome.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # looked at even if nobody waits
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.to_thread(_stop, tag, begun, done))
        raise


def _stop(tag: str, begun: Future[Running], done: Future[Any]) -> None:
    try:
        begun.result(_PATIENCE).cancel()
        done.exception(_PATIENCE)
    except TimeoutError:
        _log.warning("work of %s goes on after it was cancelled: its Python code does not end", tag)
    except Exception:  # the JVM is gone, and the job with it
        _log.info("a job of %s could not be cancelled", tag, exc_info=True)
