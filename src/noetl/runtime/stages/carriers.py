"""Carriers: long-lived tasks of Spark that take the slots of whichever stage comes along.

A Spark job costs some 0.2 s to start, and a job for each stage has the cores to itself. A carrier is a job of one task
on one core. It asks for slots, runs those of several stages side by side, and ends when nobody has had any for it for
a moment. What it is told can be told again: it says what it holds and what it has done, and gets the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from noetl.data.session.explaining import Explained, explain
from noetl.errors import InvalidInput

__all__ = ["GONE", "Carriers", "Crew", "Done", "Errand", "Lost", "News", "Round"]

_TASK = "noetl.runtime.stages.spark_task:run_carrier"
PROGRESS = "frame long, slot int, rows long"
"""A row for each frame that was run. It is for those who watch: only the log says what was committed."""
_LINGER = 0.5
_MOST_LINGERS = 6
"""How often in a row a carrier without errands stays while others of its crew have some: a stage is mostly followed by
another, and who is there need not be started. Not for long, because it holds a core that others may wait for.
"""
_SILENCE = 10.0
"""How long a carrier waits for news before it asks again."""
_PATIENCE = 5.0
"""How long code that is not wanted any more may take to notice, before its process is ended."""


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of a stage for one carrier: where the stage is kept, and what opens that door."""

    number: int = 0
    url: str
    token: str
    stage_id: int
    worker: str
    slots: tuple[int, ...]
    is_careful: bool = False
    """Run only the frames that were begun before, one at a time."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """An errand is over: its slots have drained, or it could not go on."""

    number: int
    message: str | None = None
    detail: str = ""


class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a carrier says each time it asks."""

    held: tuple[int, ...] = ()
    done: tuple[Done, ...] = ()


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What it is told: errands that are new to it, those that nobody wants any more, or that it may go."""

    errands: tuple[Errand, ...] = ()
    dropped: tuple[int, ...] = ()
    is_over: bool = False


GONE = Explained("the carrier of its slots has ended before they had", "")


class Lost(Exception):
    """An errand that did not come to its end, with the reason."""

    def __init__(self, told: Explained) -> None:
        super().__init__(told.message)
        self.told = told


class Tasks(Protocol):
    """Where a carrier runs."""

    async def run(
        self,
        target: str,
        argument: bytes,
        schema: str,
        tasks: int,
        *,
        tag: str,
        description: str,
        variables: Mapping[str, str],
    ) -> None:
        """Run a function in tasks of a job, to its end."""
        ...

    async def close(self) -> None:
        """Give the session back."""
        ...

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""
        ...


class Doorway(Protocol):
    """Where carriers knock."""

    def admit(self, answer: Callable[[bytes], Awaitable[bytes]]) -> str:
        """Let in whoever shows the token that this gives."""
        ...

    def dismiss(self, token: str) -> None:
        """No more."""
        ...


class _Carried(NamedTuple):
    errand: Errand
    ending: asyncio.Future[None]


class _Carrier:
    """One job with one task, from the first errand until it has gone."""

    def __init__(self, crew: Crew, url: str, door: Doorway, variables: Mapping[str, str], description: str) -> None:
        self.is_over = False
        self._crew = crew
        self._lingers = 0
        self._carried: dict[int, _Carried] = {}
        self._news = asyncio.Event()
        self._round = 0
        """Counts its requests. One that it has given up goes on here, with what the carrier held back then."""
        self._watches: set[asyncio.Task[None]] = set()
        self._door = door
        self._token = door.admit(self._answer)
        argument = msgspec.json.encode({"url": url, "token": self._token})
        self._job = asyncio.create_task(self._run(crew.tasks, argument, variables, description))

    async def carry(self, errand: Errand) -> None:
        """Have slots run until they have drained. Raises Lost."""
        one = _Carried(errand, asyncio.get_running_loop().create_future())
        self._carried[errand.number] = one
        self._lingers = 0
        self._news.set()
        try:
            await one.ending
        except asyncio.CancelledError:
            self._drop(errand.number)
            raise

    async def end(self) -> None:
        """Stop the job, whatever it carries."""
        self._job.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._job

    @property
    def is_gone(self) -> bool:
        """Whether the job has ended."""
        return self._job.done()

    async def gone(self) -> None:
        """Return when the job has ended."""
        await asyncio.wait({self._job})

    async def _run(self, tasks: Tasks, argument: bytes, variables: Mapping[str, str], description: str) -> None:
        told = GONE
        try:
            await tasks.run(
                _TASK, argument, PROGRESS, 1, tag="noetl-slots", description=description, variables=variables
            )
        except Exception as error:
            told = explain(error)
        finally:
            self.is_over = True
            self._door.dismiss(self._token)
            for one in self._carried.values():
                if not one.ending.done():
                    one.ending.set_exception(Lost(told))
                    one.ending.exception()  # who has given it up meanwhile does not ask
            self._carried.clear()

    def _drop(self, number: int) -> None:
        """The slots of an errand are to stop. If their code does not listen, its process is ended, by and by: other
        stages have slots in there, and lose what they have in hand."""
        one = self._carried.get(number)
        if one is None:
            return
        ended = asyncio.get_running_loop().create_future()
        self._carried[number] = _Carried(msgspec.structs.replace(one.errand, slots=()), ended)
        self._news.set()
        watch = asyncio.create_task(self._end_if_deaf(ended))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _end_if_deaf(self, ended: asyncio.Future[None]) -> None:
        await asyncio.wait({ended}, timeout=_PATIENCE)
        if not ended.done():
            await self.end()
        elif not ended.cancelled():
            ended.exception()  # looked at: what became of slots that nobody wants is of no interest

    async def _answer(self, body: bytes) -> bytes:
        try:
            asked = msgspec.json.decode(body, type=Round)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"the body is not valid: {error}") from None
        self._round += 1
        number = self._round
        for done in asked.done:
            self._heard(done)
        if (news := self._news_for(asked)) is None:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _SILENCE if self._carried else self._crew.patience)
            if number != self._round:
                return msgspec.json.encode(News())  # it has asked again: nobody reads this, and nothing follows from it
            news = self._news_for(asked)
        if news is None and not self._carried:
            self._lingers += 1
            if not self._crew.patience or self._lingers > _MOST_LINGERS:
                self.is_over = True
                news = News(is_over=True)
        return msgspec.json.encode(news or News())

    def _heard(self, done: Done) -> None:
        one = self._carried.pop(done.number, None)
        if one is None or one.ending.done():
            return
        if done.message is None:
            one.ending.set_result(None)
        else:
            one.ending.set_exception(Lost(Explained(done.message, done.detail)))
            one.ending.exception()  # who has given it up meanwhile does not ask

    def _news_for(self, asked: Round) -> News | None:
        """What the carrier does not know yet; None if that is nothing."""
        held = set(asked.held)
        wanted = {number: one.errand for number, one in self._carried.items() if one.errand.slots}
        for number in self._carried.keys() - wanted.keys() - held:
            self._heard(Done(number=number))  # it was dropped before the carrier has begun it, or has ended there
        new = tuple(errand for number, errand in wanted.items() if number not in held)
        dropped = tuple(sorted(held - wanted.keys()))
        return News(errands=new, dropped=dropped) if new or dropped else None


class Crew:
    """The carriers of one session, at most one for each core. They run the code of one directory."""

    def __init__(self, tasks: Tasks, door: Doorway, url: str, variables: Mapping[str, str]) -> None:
        self.tasks = tasks
        self.users = 0
        self.used_at = 0.0
        """When the last of them has left, by the clock of the event loop."""
        self.is_over = False
        """It has lost somebody, and takes no more stages."""
        self.is_closed = False
        self._door = door
        self._url = url
        self._variables = variables
        self._carriers: dict[int, _Carrier] = {}
        self._numbers = itertools.count(1)

    @property
    def patience(self) -> float:
        """How long a carrier may wait for the next stage from now on; 0 where the last one has left a while ago."""
        if self.users:
            return _LINGER
        return max(0.0, self.used_at + _LINGER - asyncio.get_running_loop().time())

    async def run(self, errands: Sequence[Errand], description: str) -> Lost | None:
        """Have these errands done at once, each by a carrier of its own; what was lost first, if one was.

        Then the others are dropped: they would wait for the frames that the lost one has had.
        """
        carried = [
            asyncio.create_task(self._carry(place, self._numbered(one), description))
            for place, one in enumerate(errands)
        ]
        try:
            ended, _ = await asyncio.wait(carried, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for one in carried:
                one.cancel()
            await asyncio.gather(*carried, return_exceptions=True)
        for one in ended:
            if not one.cancelled() and isinstance(lost := one.exception(), Lost):
                self.is_over = True  # the session may be gone too: the next round begins with a new one
                return lost
        return None

    async def close(self) -> None:
        """End the carriers, and give the session back."""
        self.is_closed = True
        for carrier in self._carriers.values():
            await carrier.end()
        await self.tasks.close()

    async def gone(self) -> None:
        """Return when no carrier is there any more, also of those that come meanwhile."""
        while left := [carrier for carrier in self._carriers.values() if not carrier.is_gone]:
            await left[0].gone()

    async def _carry(self, place: int, errand: Errand, description: str) -> None:
        """Have the carrier of a place do an errand. It is found and told in one go: in between it might leave."""
        await self._carrier(place, description).carry(errand)

    def _numbered(self, errand: Errand) -> Errand:
        return msgspec.structs.replace(errand, number=next(self._numbers))

    def _carrier(self, place: int, description: str) -> _Carrier:
        carrier = self._carriers.get(place)
        if carrier is None or carrier.is_over:
            carrier = _Carrier(self, self._url, self._door, self._variables, description)
            self._carriers[place] = carrier
        return carrier


class Carriers:
    """The crews of a process, by what tells their sessions and their code apart."""

    def __init__(self, door: Doorway) -> None:
        self._door = door
        self._crews: dict[Hashable, Crew] = {}
        self._making = asyncio.Lock()
        self._partings: dict[Crew, asyncio.Task[None]] = {}

    @contextlib.asynccontextmanager
    async def crew(
        self, key: Hashable, open_tasks: Callable[[], Awaitable[tuple[Tasks, str]]], variables: Mapping[str, str]
    ) -> AsyncIterator[Crew]:
        """The crew of this key; if there is none, one with the tasks and the address that `open_tasks` gives."""
        async with self._making:
            crew = self._crews.get(key)
            if crew is None or crew.is_over:
                tasks, url = await open_tasks()
                crew = self._crews[key] = Crew(tasks, self._door, url, variables)
            crew.users += 1
        try:
            yield crew
        finally:
            crew.users -= 1
            crew.used_at = asyncio.get_running_loop().time()
            if not crew.users and crew not in self._partings:
                self._partings[crew] = asyncio.create_task(self._part(key, crew))

    async def close(self) -> None:
        """End every carrier."""
        partings = list(self._partings.values())
        for parting in partings:
            parting.cancel()
        await asyncio.gather(*partings, return_exceptions=True)
        crews, self._crews = list(self._crews.values()), {}
        for crew in crews:
            await crew.close()

    async def _part(self, key: Hashable, crew: Crew) -> None:
        """Nobody uses a crew: when its carriers have gone too, its session is given back."""
        try:
            await crew.gone()
            async with self._making:
                if crew.users or crew.is_closed:
                    return
                if self._crews.get(key) is crew:
                    del self._crews[key]
                await crew.close()
        finally:
            del self._partings[crew]
