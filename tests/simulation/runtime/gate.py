"""The gate: all that a process does to the world outside goes through it, and there it can be struck.

A process that was killed gets nothing through any more: whatever is left of it in memory can do no harm.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from noetl.errors import StorageFull, Unavailable
from tests.simulation.runtime.schedule import Crash, Delay, Fail, Fault, Hang, Pause, Place, Stop
from tests.simulation.runtime.world import World

__all__ = ["Gate", "Gated", "Killed", "adopt_tasks", "inside"]

T = TypeVar("T")
_QUIET, _YIELDING = 0.55, 0.9
_LONGEST = 0.05
_inside: contextvars.ContextVar[Gate | None] = contextvars.ContextVar("process", default=None)


class Killed(BaseException):
    """The process does not exist any more. Nothing in it may catch this."""


class Gate:
    """One life of one process, as the world sees it."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.alive = True
        self.stopping = False
        """Somebody has asked for a proper end."""
        self.down = 0.0
        self.tasks: set[asyncio.Task[Any]] = set()
        self._paused_until = 0.0

    def enter(self) -> None:
        """Tasks that are made from here on belong to this process."""
        _inside.set(self)

    def kill(self) -> None:
        """End it here and now. Whoever says so stops by itself."""
        self.alive = False
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()

    async def awake(self) -> None:
        """Return unless the process is dead; not before it goes on, when it stands still."""
        while self.alive and (left := self._paused_until - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left)  # it may be put to sleep again meanwhile
        if not self.alive:
            raise Killed

    async def through(self, place: Place, act: Callable[[], Awaitable[T]], *, once: bool = False) -> T:
        """Do something outside, with whatever goes wrong this time. What is said only `once` does not get lost."""
        await self.awake()
        faults = self.world.strike_at(place, self.number)
        if once:
            faults = [fault for fault in faults if not isinstance(fault, Fail)]
        await self._hold(sum(fault.seconds for fault in faults if isinstance(fault, Delay)))
        self._strike(place, faults, after=False)
        await self.awake()
        answer = await act()
        self._strike(place, faults, after=True)
        await self._hold(sum(fault.seconds for fault in faults if isinstance(fault, Hang)))
        await self.awake()
        return answer

    async def _hold(self, seconds: float) -> None:
        """Take some time: others may come first."""
        if seconds:
            await asyncio.sleep(seconds)
        drawn = self.world.chance.random()
        if drawn > _YIELDING:
            await asyncio.sleep(self.world.chance.random() * _LONGEST)
        elif drawn > _QUIET:
            await asyncio.sleep(0)

    def _strike(self, place: Place, faults: list[Fault], *, after: bool) -> None:
        if not self.alive:
            raise Killed
        for fault in faults:
            match fault:
                case Crash() if fault.after == after:
                    self.down = fault.down
                    self.kill()
                    raise Killed
                case Stop() if not after:
                    self.stopping, self.down = True, fault.down
                case Pause() if fault.after == after:
                    self._paused_until = asyncio.get_running_loop().time() + fault.seconds
                case Fail() if fault.after == after:
                    raise StorageFull("the disk is full") if fault.full else Unavailable(f"no answer to {place}")


def inside() -> Gate | None:
    """The life of the process in which this is asked; None outside of every process."""
    return _inside.get()


class Gated:
    """A store behind a gate. `places` says what its methods count as; the others are not struck."""

    def __init__(self, inner: Any, gate: Gate, places: dict[str, Place]) -> None:
        self._inner = inner
        self._gate = gate
        self._places = places

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        place = self._places.get(name)
        if place is None or not inspect.iscoroutinefunction(found):
            return found
        gate = self._gate

        async def through(*arguments: Any, **named: Any) -> Any:
            answer = await gate.through(place, lambda: found(*arguments, **named), once=name == "expire")
            if name == "append":
                gate.world.acknowledged(answer)
            return answer

        self.__dict__[name] = through
        return through


def adopt_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let every task be known to the process that made it."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **more)
        gate = _inside.get()
        if gate is not None:
            gate.tasks.add(task)
            task.add_done_callback(gate.tasks.discard)
            if not gate.alive:
                task.cancel()
        return task

    loop.set_task_factory(make)
