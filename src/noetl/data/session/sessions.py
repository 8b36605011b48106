"""The Spark session of a process: started once, in the background, and shared by all that runs in it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.session.conf import SessionConf
from noetl.data.session.opened import Opened, SessionInfo, open_session
from noetl.data.session.refusals import SettingsDiffer, SparkLost
from noetl.data.session.shipping import ship_modules
from noetl.data.source.place import Place
from noetl.data.source.registering import PUSHDOWN, register
from noetl.errors import NoetlError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SessionInfo", "SparkSessions"]

_STARTS = 3
"""How often Spark is started for one who asks, when it is lost on the way."""
_ENDS_SECONDS = 1.0

_log = logging.getLogger(__name__)
_shared: list[SparkSessions] = []
_shared_lock = threading.Lock()


class SparkSessions:
    """One per process. `home` is where Spark may write; with `attach` a warm session of that home is used if there
    is one and its settings fit."""

    def __init__(self, home: Path, *, attach: bool = True) -> None:
        self._home = home
        self._attach = attach
        self._lock = threading.Lock()
        self._opening: Future[Opened] | None = None
        self._closed = False

    @classmethod
    def shared(cls, home: Path) -> SparkSessions:
        """The ones of this process, made by whoever comes first and closed when the process ends: PySpark knows only
        one session at a time, so all runs in a process share it, whatever their home."""
        with _shared_lock:
            if not _shared or _shared[0].is_closed:
                _shared[:] = [cls(home)]
                atexit.register(_shared[0].leave)
            return _shared[0]

    @property
    def is_closed(self) -> bool:
        """Whether they have been closed."""
        return self._closed

    def prepare(self, conf: SessionConf) -> None:
        """Begin to start Spark, if nobody has yet, and return at once. What goes wrong is told by `get`."""
        self._begin(conf)

    async def get(
        self,
        conf: SessionConf,
        *,
        modules: Sequence[Path] = (),
        names: Collection[str] | None = None,
        place: Place | None = None,
    ) -> SparkSession:
        """A session of your own on the process's Spark: temporary views and SQL settings are not seen by others.

        `modules` are directories whose modules, or those of these names, the code of its jobs may import; `place` is
        the installation that the `noetl` format reads, for sessions in which users ask for it. Raises SparkUnavailable
        if Spark cannot run here, SettingsDiffer if it runs with settings that `conf` cannot share. A Spark that has
        died is started again, also one that was killed while it started; a start that has failed is tried again.
        """
        for _ in range(_STARTS - 1):
            try:
                return await self._get(conf, modules, names, place)
            except SparkLost as error:
                _log.warning("%s; it is started again", error.message)
        return await self._get(conf, modules, names, place)

    async def _get(
        self, conf: SessionConf, modules: Sequence[Path], names: Collection[str] | None, place: Place | None
    ) -> SparkSession:
        opened = await asyncio.shield(asyncio.wrap_future(self._begin(conf)))
        if await asyncio.to_thread(opened.is_dead):
            opened = await asyncio.shield(asyncio.wrap_future(self._begin(conf, instead_of=opened)))
        try:
            return await asyncio.to_thread(_session, opened, conf, modules, names, place)
        except NoetlError:
            raise
        except Exception as error:
            if await asyncio.to_thread(opened.ends_within, _ENDS_SECONDS):
                raise SparkLost("Spark's Java process ended while a session was made") from error
            raise

    async def is_lost(self, session: SparkSession) -> bool:
        """Whether the Spark of a session has died, for whoever has seen a job fail."""
        opening = self._opening
        if opening is None or not opening.done() or opening.exception() is not None:
            return True  # there is another one by now, or will be
        opened = opening.result()
        return not opened.has(session) or await asyncio.to_thread(opened.ends_within, _ENDS_SECONDS)

    async def release(self, session: SparkSession) -> None:
        """Say that a session from `get` is needed no more, at the end of a run. A Connect server keeps it otherwise."""
        opening = self._opening
        if opening is not None and opening.done() and opening.exception() is None:
            await asyncio.to_thread(opening.result().release, session)

    def info(self) -> SessionInfo | None:
        """What is known of the session, once it runs."""
        opening = self._opening
        if opening is None or not opening.done() or opening.exception() is not None:
            return None
        return opening.result().info

    def close(self) -> None:
        """End Spark and wait for its end; a warm session is left as it is. Safe to call again, and from any thread."""
        with self._lock:
            self._closed = True
            opening, self._opening = self._opening, None
        if opening is not None and opening.exception() is None:
            opening.result().close()

    def leave(self) -> None:
        """The process ends. A Spark that is still starting is not waited for: Java ends with our end of its standard
        input, and the next process removes what it leaves behind."""
        with self._lock:
            is_starting = self._opening is not None and not self._opening.done()
            self._closed = True
        if not is_starting:
            self.close()

    def _begin(self, conf: SessionConf, *, instead_of: Opened | None = None) -> Future[Opened]:
        with self._lock:
            if self._closed:
                raise Unavailable("the Spark sessions of this process are closed", hint="it is about to end")
            if self._opening is None or _is_over(self._opening, instead_of):
                self._opening = Future()
                thread = threading.Thread(
                    target=self._open, args=(conf, self._opening, instead_of), name="spark-start", daemon=True
                )
                thread.start()
            return self._opening

    def _open(self, conf: SessionConf, opening: Future[Opened], dead: Opened | None) -> None:
        began = time.monotonic()
        try:
            if dead is not None:
                _log.warning("Spark has ended unexpectedly and is started again")
                with contextlib.suppress(Exception):  # it is dead: what can still be tidied up is
                    dead.close()
            opened = open_session(conf, self._home, attach=self._attach)
        except BaseException as error:
            opening.set_exception(error)
        else:
            _log.info("Spark on %s is ready after %.1f s", opened.info.master, time.monotonic() - began)
            opening.set_result(opened)


def _is_over(opening: Future[Opened], dead: Opened | None) -> bool:
    """Whether to begin anew: the last try has failed, or has given what turned out to be dead."""
    if not opening.done():
        return False
    return opening.exception() is not None or opening.result() is dead


def _session(
    opened: Opened, conf: SessionConf, modules: Sequence[Path], names: Collection[str] | None, place: Place | None
) -> SparkSession:
    if differs := opened.first_difference(conf):
        raise SettingsDiffer(*differs)
    session = opened.new_session(conf)
    if modules:
        ship_modules(session, modules, opened.scratch, names)
    if place is not None and opened.info.is_classic:  # a server elsewhere does not have what is here
        register(session, place=place, push_filters=conf.conf.get(PUSHDOWN) != "false")
    return session
