"""From an execution in the log to the request for one that goes on from it."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator

import msgspec

from noetl.engine.fork import Adopted, Fork, Harvest, is_entry
from noetl.engine.routing import Graph
from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope, Json
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.payloads.store import PayloadStore
from noetl.playbook.document import Playbook
from noetl.ports.ledger import Ledger
from noetl.runtime.driver import Driver, Request
from noetl.runtime.execution import Execution
from noetl.runtime.loading import with_values

__all__ = ["Forks", "Repaired", "Retry"]

_PAGE = 1000
_MOST_NAMED = 20


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """A document to go on with instead of the one that the source ran."""

    text: str
    file: str
    origin: str
    playbook: Playbook


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to be tried again."""

    execution_id: int
    step: str | None = None
    """Where to begin; None for the step that failed."""
    workload: Json = {}
    """Values that replace those of the source."""
    key: str | None = None
    repaired: Repaired | None = None
    force: bool = False
    """Also while the source is running."""


class Forks:
    """Plans forks of the executions of one ledger. Nothing is written here: starting the request does that."""

    def __init__(self, ledger: Ledger, payloads: PayloadStore, driver: Driver, tenant_id: str) -> None:
        self._ledger = ledger
        self._payloads = payloads
        self._driver = driver
        self._tenant_id = tenant_id

    async def plan(self, retry: Retry) -> Request:
        """The request that starts the fork. Raises NotFound, or InvalidInput saying what to ask for instead."""
        source = await self._driver.execution(retry.execution_id)
        await self._check_key(retry)
        playbook = _document(source, retry.repaired)
        step = _beginning(source, playbook, retry)
        harvest, said = await self._harvest(retry.execution_id, playbook, step)
        fork = harvest.fork()
        _check_adopted(fork.steps, playbook, retry)
        workload = harvest.control.workload
        fork = msgspec.structs.replace(
            fork,
            ctx={**fork.ctx, **_seeds(retry.workload)},
            workload=_own_ctx(workload, retry.workload),
        )
        return _request(source, retry, fork, workload, said)

    async def _check_key(self, retry: Retry) -> None:
        """A key names one execution; the one of another would be continued in place of the fork."""
        found = None if retry.key is None else await self._ledger.by_key(self._tenant_id, retry.key)
        if found is None:
            return
        origin = found.event.payload.get("forked_from") or {}
        if origin.get("execution_id") != retry.execution_id:
            raise InvalidInput(
                f"key '{retry.key}' belongs to execution {found.event.execution_id}, "
                f"which is not a retry of {retry.execution_id}",
                hint="choose another --key",
            )

    async def _harvest(self, execution_id: int, playbook: Playbook, step: str) -> tuple[Harvest, Json]:
        """What is taken over, and how the source introduced its document."""
        entry: int | None = None
        async for event in self._events(execution_id):
            if is_entry(event, step):
                entry = event.event_id
        if entry is None:
            _check_reachable(playbook, step)
        harvest = Harvest(execution_id, playbook, step, entry)
        said: Json = {}
        async for event in self._events(execution_id):
            said = said or event.payload.get("document", {})
            harvest.take(await with_values(event, self._payloads))
        return harvest, said

    async def _events(self, execution_id: int) -> AsyncIterator[Envelope]:
        stream = Stream(self._tenant_id, execution_stream(execution_id))
        version = 0
        while page := await self._ledger.read(stream, after_version=version, limit=_PAGE):
            for item in page:
                yield item.event
            version = page[-1].event.stream_version


def _document(source: Execution, repaired: Repaired | None) -> Playbook:
    if repaired is None:
        return source.playbook
    if repaired.playbook.path != source.playbook.path:
        raise InvalidInput(
            f"{repaired.file} is the playbook '{repaired.playbook.path}', and execution "
            f"{source.control.execution_id} ran '{source.playbook.path}'",
            hint="retry with a repaired version of the same playbook, or start the other one with noetl run",
        )
    return repaired.playbook


def _beginning(source: Execution, playbook: Playbook, retry: Retry) -> str:
    """The step to begin at, if this execution can be retried at all."""
    control = source.control
    if control.ended is None and not retry.force:
        raise InvalidInput(
            f"execution {retry.execution_id} is still running",
            hint=f"noetl resume {retry.execution_id} goes on with it; to fork it, cancel it first, or use --force",
        )
    step = retry.step if retry.step is not None else control.failed_step
    if step is None:
        raise InvalidInput(
            f"execution {retry.execution_id} is {control.ended or 'RUNNING'} and no step of it has failed",
            hint=f"say where to begin: --from STEP; steps: {_some(playbook)}",
        )
    if step not in playbook.steps:
        near = difflib.get_close_matches(step, playbook.steps, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"steps: {_some(playbook)}"
        raise InvalidInput(f"there is no step '{step}' in {playbook.path}", hint=hint)
    return step


def _check_reachable(playbook: Playbook, step: str) -> None:
    """A step that never ran can be begun with if a token could have come to it."""
    if step in (playbook.entry, playbook.final_step) or Graph(playbook).reaches(playbook.entry, step, ""):
        return
    raise InvalidInput(
        f"step '{step}' did not run, and no arc leads to it", hint=f"begin with another one: {_some(playbook)}"
    )


def _check_adopted(adopted: tuple[Adopted, ...], playbook: Playbook, retry: Retry) -> None:
    gone = [one.step for one in adopted if one.step not in playbook.steps]
    if gone and retry.repaired is not None:
        raise InvalidInput(
            f"{retry.repaired.file} has no step '{gone[0]}', whose result is to be adopted",
            hint=f"keep step '{gone[0]}', or begin with a step that ran before it",
        )


def _seeds(workload: Json) -> Json:
    """A mapping `ctx` among the new values goes to `ctx`, as it does when an execution starts."""
    seeds = workload.get("ctx")
    return seeds if isinstance(seeds, dict) else {}


def _own_ctx(workload: Json, given: Json) -> Json:
    """A value of the workload that is called `ctx` stays what it is: the source has sorted out which is which."""
    return {"ctx": workload["ctx"]} if "ctx" in workload and "ctx" not in given else {}


def _request(source: Execution, retry: Retry, fork: Fork, workload: Json, said: Json) -> Request:
    kept = {name: value for name, value in workload.items() if name != "ctx"}
    seeds = _seeds(retry.workload)
    given = {name: value for name, value in retry.workload.items() if name != "ctx" or not seeds}
    repaired = retry.repaired
    return Request(
        document=repaired.text if repaired else source.document,
        file=repaired.file if repaired else source.file,
        origin=repaired.origin if repaired else said.get("origin", "file"),
        entry=None if repaired else said.get("entry"),
        workload={**kept, **given, **seeds},
        key=retry.key,
        authority=source.control.authority,
        execution_pool=source.control.execution_pool,
        fork=fork,
    )


def _some(playbook: Playbook) -> str:
    names = list(playbook.steps)
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
