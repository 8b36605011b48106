"""`noetl.run`, `noetl.arun` and `noetl.open`: playbooks run in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from noetl.api.asking import Job
from noetl.api.local import Local
from noetl.api.portal import AsyncMailbox, Mailbox, Portal
from noetl.api.run import Run, as_execution_id, concluded
from noetl.api.sources import Reference, Runnable, source_of
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from noetl.kernel.event import Envelope

__all__ = ["Session", "arun", "open_session", "run"]

OnEvent = Callable[["Envelope"], None]


def run(
    playbook: Runnable,
    *,
    home: str | os.PathLike[str] | None = None,
    key: str | None = None,
    parent_execution_id: int | str | None = None,
    on_event: OnEvent | None = None,
    timeout: float | None = None,
    check: bool = False,
    workload: Mapping[str, Any] | None = None,
    **values: Any,
) -> Run:
    """Run a playbook here, wait for its end, and give the run.

    `playbook` is a file, a catalog path, YAML text, a `Playbook`, a builder or a mapping. Further keywords are the
    workload; `workload=` takes names that are keywords here. The same `key` continues the same execution. `on_event`
    is called with each event in this thread. An execution that takes longer than `timeout` seconds is cancelled, and
    `ExecutionTimedOut` is raised. With `check` a run that does not complete raises `ExecutionFailed`.
    """
    job = job_of(playbook, {**(workload or {}), **values}, key, parent_execution_id, timeout)
    local = Local(home)
    with Portal() as portal:
        return _run(local, portal, job, on_event, check)


async def arun(
    playbook: Runnable,
    *,
    home: str | os.PathLike[str] | None = None,
    key: str | None = None,
    parent_execution_id: int | str | None = None,
    on_event: OnEvent | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - it limits the execution, whoever awaits it
    check: bool = False,
    workload: Mapping[str, Any] | None = None,
    **values: Any,
) -> Run:
    """The same as `run`, for a caller that awaits: its loop goes on meanwhile. Cancelling it cancels the execution."""
    job = job_of(playbook, {**(workload or {}), **values}, key, parent_execution_id, timeout)
    local = Local(home)
    with Portal() as portal:
        return await _arun(local, portal, job, on_event, check)


def open_session(home: str | os.PathLike[str] | None = None, *, tenant: str | None = None) -> Session:
    """Open a home for several runs, which share one runtime and its warm processes. Close it, or use `with`."""
    return Session(home, tenant=tenant)


class Session:
    """A home that stays open. It may be used from several threads at once."""

    def __init__(self, home: str | os.PathLike[str] | None = None, *, tenant: str | None = None) -> None:
        self._local = Local(home, tenant)
        self._portal = Portal()
        self._portal.__enter__()
        self._closing = self._portal.call(_event())
        try:
            self._keeper = self._portal.call(_kept(self._local, self._closing))
        except BaseException:
            self._portal.__exit__(None, None, None)
            raise
        self._local.portal = self._portal

    def run(
        self,
        playbook: Runnable,
        *,
        key: str | None = None,
        parent_execution_id: int | str | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        check: bool = False,
        workload: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> Run:
        """Run a playbook and wait for its end; see `noetl.run`."""
        job = job_of(playbook, {**(workload or {}), **values}, key, parent_execution_id, timeout)
        return _run(self._local, self._portal, job, on_event, check)

    async def arun(
        self,
        playbook: Runnable,
        *,
        key: str | None = None,
        parent_execution_id: int | str | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it limits the execution, whoever awaits it
        check: bool = False,
        workload: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> Run:
        """Run a playbook and await its end; several may run at once."""
        job = job_of(playbook, {**(workload or {}), **values}, key, parent_execution_id, timeout)
        return await _arun(self._local, self._portal, job, on_event, check)

    def register(self, playbook: Runnable) -> list[dict[str, Any]]:
        """Put a file, text or playbook into the catalog; says path and version of each document."""
        source = source_of(playbook)
        if isinstance(source, Reference):
            raise InvalidInput(f"'{source}' is a catalog path", hint="register a file, YAML text or a Playbook")
        return self._portal.call(self._local.register(source))

    def executions(self, *, status: str | None = None, path: str | None = None, limit: int = 50) -> Sequence[Run]:
        """Executions of this home, newest first."""
        found = self._portal.call(self._local.executions(status, path, limit))
        return [Run(self._local, summary) for summary in found]

    def get(self, execution_id: int | str) -> Run:
        """An execution by its id. Raises NotFound."""
        return Run(self._local, self._portal.call(self._local.summary(as_execution_id(execution_id))))

    def close(self) -> None:
        """Close the home. What is still running stops, and goes on with `noetl resume`; runs can still be asked."""
        if self._local.portal is None:
            return
        self._portal.call(_closed(self._keeper, self._closing))
        self._local.portal = None
        self._portal.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({str(self._local.home.path)!r}{', closed' if self._local.portal is None else ''})"


def job_of(
    playbook: Runnable,
    workload: dict[str, Any],
    key: str | None,
    parent_execution_id: int | str | None,
    timeout: float | None,
) -> Job:
    """What a caller has asked for, checked before anything is opened."""
    if timeout is not None and not timeout > 0:
        raise InvalidInput(f"timeout={timeout} leaves no time at all", hint="give seconds, or None for no limit")
    parent = None if parent_execution_id is None else as_execution_id(parent_execution_id)
    what = source_of(playbook)
    return Job(what=what, workload=workload, key=key, parent_execution_id=parent, timeout=timeout)


def _run(local: Local, portal: Portal, job: Job, on_event: OnEvent | None, check: bool) -> Run:
    mailbox = Mailbox(on_event or _ignore)
    outcome = portal.call(local.run(job, mailbox.put), mailbox)
    return concluded(Run(local, outcome.summary), check, job.timeout if outcome.timed_out else None)


async def _arun(local: Local, portal: Portal, job: Job, on_event: OnEvent | None, check: bool) -> Run:
    mailbox = AsyncMailbox(on_event or _ignore)
    outcome = await portal.acall(local.run(job, mailbox.put), mailbox)
    return concluded(Run(local, outcome.summary), check, job.timeout if outcome.timed_out else None)


def _ignore(event: Envelope) -> None:
    """Nobody wants to hear of it."""


async def _event() -> asyncio.Event:
    return asyncio.Event()


async def _kept(local: Local, closing: asyncio.Event) -> asyncio.Task[None]:
    """A task that keeps a home open until it is to be closed; given back once the home is open."""
    opened = asyncio.Event()

    async def keep() -> None:
        async with local.kept_open():
            opened.set()
            await closing.wait()

    keeper = asyncio.create_task(keep())
    waiting = asyncio.create_task(opened.wait())
    await asyncio.wait([keeper, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if keeper.done():
        keeper.result()
    return keeper


async def _closed(keeper: asyncio.Task[None], closing: asyncio.Event) -> None:
    closing.set()
    await keeper
