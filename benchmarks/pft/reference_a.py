"""Reference A: a hand-written asyncio script, one process for each core.

The parent keeps the order of the work and tells its processes what to drain; they share the queue in Postgres, so
that a fast one simply takes more of it. A process that dies is started again: what it had claimed goes back to the
queue when the claims are old enough.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

from benchmarks.pft.drain import Drained, Plan, opened

__all__ = ["Crew", "processes"]

Asked = tuple[str, int, list[str]]
"""A run, a facility, and what to drain of it."""

_spawn = multiprocessing.get_context("spawn")


class Crew:
    """The processes, with their connections open."""

    def __init__(self, plan: Plan, count: int) -> None:
        self._members = [_Member(plan) for _ in range(count)]
        for member in self._members:
            member.wait()

    def drain(self, run: str, facility: int, kinds: list[str]) -> Drained:
        """Drain with all of them at once."""
        asked = (run, facility, kinds)
        for member in self._members:
            member.ask(asked)
        return sum((member.answer(asked) for member in self._members), Drained())

    def pids(self) -> list[int]:
        """The processes that are alive, for those who want to kill one."""
        return [pid for member in self._members if (pid := member.pid) is not None]

    def close(self) -> None:
        """Let them end by themselves."""
        for member in self._members:
            member.close()


class _Member:
    """One process, and the one that takes its place."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process.is_alive() else None

    def wait(self) -> None:
        self._pipe.recv()

    def ask(self, asked: Asked) -> None:
        with suppress(BrokenPipeError):  # one that has died is replaced when its answer is waited for
            self._pipe.send(asked)

    def answer(self, asked: Asked) -> Drained:
        """What it has done; what one that was killed has done is in the tables, but nobody can say how much that was.

        Raises RuntimeError if it has ended by itself: the reason would end the next one too.
        """
        while True:
            try:
                said = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                self._replace()
                self.ask(asked)
            else:
                if isinstance(said, Drained):
                    return said

    def close(self) -> None:
        self._pipe.close()
        self._process.join()

    def _replace(self) -> None:
        self.close()
        if (code := self._process.exitcode) is not None and code >= 0:
            raise RuntimeError(f"a process of reference A has ended with {code}: what it printed says why")
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_work, args=(self._plan, theirs), daemon=True)
        self._process.start()
        theirs.close()


@contextmanager
def processes(plan: Plan, count: int) -> Iterator[Crew]:
    """A crew for as long as it is wanted."""
    crew = Crew(plan, count)
    try:
        yield crew
    finally:
        crew.close()


def _work(plan: Plan, pipe: Connection) -> None:
    asyncio.run(_serve(plan, pipe))


async def _serve(plan: Plan, pipe: Connection) -> None:
    async with opened(plan) as drainer:
        pipe.send("ready")
        while True:
            try:
                asked = await asyncio.to_thread(pipe.recv)
            except EOFError:
                return
            pipe.send(await drainer.drain(*asked))
