"""Whoever asks for an execution and looks after the processes: starts it, starts them again, and waits for the end.

The operator helps where a person or a supervisor would: a process that died is started again, and an execution
whose runner has said that it cannot go on is taken up again, unless its leases are kept outside, as a server's are.
All else must come right by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from noetl.errors import NoetlError
from noetl.playbook.parse import load
from noetl.runtime.driver import Request
from noetl.runtime.embedded import runner as shipped
from tests.simulation.runtime.documents import Case
from tests.simulation.runtime.gate import Killed
from tests.simulation.runtime.process import Process
from tests.simulation.runtime.schedule import Cancel, Redeliver
from tests.simulation.runtime.world import TENANT, Member, World

__all__ = ["Operator"]

_POLL = 0.5
_SLOW = 5.0
_KEY = "the/run"
_PATIENCE = 14_400.0
_LAPSE = 160.0
"""Until a lease that nobody renews has lapsed and was reaped."""


class Operator:
    """Sees one run through."""

    def __init__(self, world: World, case: Case) -> None:
        self._world = world
        self._case = case
        self._request = Request(document=case.document, file="root", workload=case.workload, key=_KEY)
        self._lives = [0, 0]
        self._down: dict[int, float] = {}
        self.processes: dict[int, Process] = {}

    async def see_through(self) -> None:
        """From the request to the proper end of everything."""
        for document in self._case.called:
            await self._world.catalog.register(TENANT, _path_of(document), "Playbook", document)
        for number in range(2 if self._world.schedule.mode == "pair" else 1):
            await self._start_process(number)
        await self._start_root()
        await self._until_at_rest()
        for process in self.processes.values():
            await process.do(process.gate.awake())
        await asyncio.sleep(_LAPSE + max(0.0, -self._world.lease_clock.offset))
        while any(one.busy for one in self.processes.values()) and not self._out_of_patience:  # noqa: ASYNC110
            await asyncio.sleep(_SLOW)

    async def close(self) -> None:
        """Stop every process properly. What they have not sealed yet, they seal now."""
        for process in self.processes.values():
            for member in self._world.members.values():
                await process.do(process.runner.resume(member.execution_id))
        for process in self.processes.values():
            await process.do(process.stop())
        await self._world.observe()

    async def _start_root(self) -> None:
        """Ask until it is answered. However often that is, it is one execution."""
        while True:
            process = await self._someone()
            try:
                started = await process.do(process.runner.start(self._request))
                await process.do(process.runner.resume(started))
                return
            except (NoetlError, Killed, asyncio.CancelledError):
                await asyncio.sleep(_POLL)
                await self._look_after()

    async def _until_at_rest(self) -> None:
        pace = _POLL
        while True:
            await asyncio.sleep(pace)
            moved = await self._world.observe()
            await self._look_after()
            if self._world.at_rest:
                self._world.calm()
                if self._all_up:
                    return
            pace = _POLL if moved else min(_SLOW, pace * 1.5)
            if self._out_of_patience:
                self._world.blame(f"it did not come to its end: {self._left()}")
                return

    @property
    def _out_of_patience(self) -> bool:
        return asyncio.get_running_loop().time() > _PATIENCE

    @property
    def _all_up(self) -> bool:
        gates = [process.gate for process in self.processes.values()]
        return not self._down and all(gate.alive and not gate.stopping for gate in gates)

    def _left(self) -> str:
        members = self._world.members.values()
        found = [f"{member.status or 'running'} with {len(member.open)} in flight" for member in members]
        return "; ".join(found) or "it was never begun"

    # --- Processes

    async def _look_after(self) -> None:
        now = asyncio.get_running_loop().time()
        for number, process in list(self.processes.items()):
            if process.gate.stopping and process.gate.alive:
                await _survived(process.do(process.stop()))
            if not process.gate.alive:
                del self.processes[number]
                await self._bury(number, process.gate.down)
        for number, until in list(self._down.items()):
            if until <= now:
                del self._down[number]
                await self._start_process(number)
        for fault in self._take_todo():
            await self._disturb(fault)
        for process in list(self.processes.values()):
            await self._listen(process)

    async def _bury(self, number: int, down: float) -> None:
        """Have a dead process started again; if it will never be, somebody else takes up what it did."""
        if down >= 0 or not self.processes:
            self._down[number] = asyncio.get_running_loop().time() + max(down, 0.0)
            return
        for process in list(self.processes.values()):
            await self._take_up_all(process)

    async def _start_process(self, number: int) -> None:
        if self._world.schedule.mode != "pair" and self._lives[number]:
            await self._world.reopen(kill=True)
        process = Process(self._world, number, self._lives[number])
        self._lives[number] += 1
        self.processes[number] = process
        process.begin(self._world.schedule.slots)
        await self._take_up_all(process)

    async def _take_up_all(self, process: Process) -> None:
        await self._world.observe()
        going_on = [member for member in self._world.tops if member.status is None]
        unfinished = [member for member in self._world.members.values() if member.status and member.open]
        for member in [*going_on, *unfinished]:
            await self._take_up(process, member)

    async def _take_up(self, process: Process, member: Member) -> None:
        """Go on with an execution; what is in the way of that now may be gone in a moment."""
        while process.gate.alive:
            try:
                await process.do(process.runner.resume(member.execution_id))
                return
            except NoetlError:
                await asyncio.sleep(_POLL)
            except (Killed, asyncio.CancelledError):
                return

    async def _someone(self) -> Process:
        while not self.processes:
            await asyncio.sleep(_POLL)
            await self._look_after()
        return next(iter(self.processes.values()))

    async def _listen(self, process: Process) -> None:
        """Hear what a process says about the executions it looks after."""
        for member in self._world.tops:
            waiting = process.waiting.get(member.execution_id)
            if waiting is not None and waiting.done():
                del process.waiting[member.execution_id]
                await self._heard(process, member, waiting)
            elif waiting is None and member.status is None:
                process.waiting[member.execution_id] = process.spawn(process.runner.wait(member.execution_id))

    async def _heard(self, process: Process, member: Member, waiting: asyncio.Task[Any]) -> None:
        if waiting.cancelled() or not process.gate.alive:
            return
        error = waiting.exception()
        await self._world.observe()
        if error is None:
            if waiting.result().status == "RUNNING":
                self._world.blame(f"execution {member.execution_id} was said to have ended, and runs")
        elif not isinstance(error, NoetlError):
            self._world.blame(f"a runner gave up: {error!r}")
        elif self._world.schedule.patient:
            if self._world.schedule.mode != "pair":  # a server has nobody who hears that, and has to go on by itself
                await self._take_up(process, member)
        else:
            self._world.strikes.append(asyncio.get_running_loop().time())
            process.gate.stopping = True

    # --- Disturbances

    def _take_todo(self) -> list[Any]:
        todo, self._world.todo = self._world.todo, []
        return todo

    async def _disturb(self, fault: Any) -> None:
        for process in list(self.processes.values()):
            if isinstance(fault, Redeliver):
                process.spawn(self._redeliver(process))
        if isinstance(fault, Redeliver) or not self.processes or not self._world.members:
            return
        process = next(iter(self.processes.values()))
        if isinstance(fault, Cancel):
            process.spawn(self._cancel(process, fault))
        else:
            process.spawn(self._start_again(process))

    async def _redeliver(self, process: Process) -> None:
        with contextlib.suppress(NoetlError):
            for member in list(self._world.members.values()):
                for issued in await process.runner.driver.pending(member.execution_id):
                    process.runner.pool.enqueue(issued)

    async def _cancel(self, process: Process, fault: Cancel) -> None:
        members = list(self._world.members)
        chosen = members[fault.member % len(members)]
        asked = asyncio.get_running_loop().time()
        with contextlib.suppress(NoetlError):
            ended = await shipped.cancel_tree(
                process.embedded, process.runner.driver, chosen, "somebody said so", cascade=fault.cascade
            )
            await self._world.observe()
            if chosen in ended:
                moments = (asked, asyncio.get_running_loop().time())
                self._world.cancelled.append((chosen, fault.cascade, len(self._world.log), moments))

    async def _start_again(self, process: Process) -> None:
        with contextlib.suppress(NoetlError):
            again = await process.runner.start(self._request)
            root = self._world.root
            if root is not None and again != root.execution_id:
                self._world.blame(f"the same key started {again} beside {root.execution_id}")


async def _survived(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(Killed, asyncio.CancelledError, NoetlError):
        await work


def _path_of(document: str) -> str:
    return load(document, "called").path
