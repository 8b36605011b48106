"""The desk of a stage: whatever slots ask is decided here, in groups, and answered when it is written.

All that is asked while an append is under way becomes the next append, so the cost of durability is shared by many
frames. The desk has its stage's stream to itself. It finds out that this is no longer so from the version of the
stream, and then gives up: another keeper has the stage.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from noetl.data.frame.log import StageLog
from noetl.data.frame.protocol import Pinned, StagePlan
from noetl.data.frame.state import Author, Turn
from noetl.data.frame.table import FrameTable
from noetl.errors import InvalidEvent, LeaseLost, NoetlError, StreamSealed, Unavailable, VersionConflict
from noetl.kernel.event import Draft, Envelope, Json, PayloadRef
from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import Seal
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.runtime.stages.meter import FrameMeter

__all__ = ["Answer", "Decide", "Desk"]

T = TypeVar("T")
Answer = Callable[[], T]
"""What is said to whoever asked, once it is written."""
Decide = Callable[[FrameTable, Turn], Answer[T] | None]
"""Decides what was asked; None if it is too early, and it is to be asked again when something has changed."""
Resolve = Callable[[Json], Awaitable[Json]]

_PAGE = 1000
_MOST_DRAFTS = 384
_TRIES = 6
_PAUSE = 0.05
_SECOND = 1_000_000
_GATHER_SECONDS = 0.02
"""How long outcomes are gathered for one append, where they come one after the other."""


class _Ask:
    """Something that a slot wants, and where it waits for the answer."""

    __slots__ = ("can_wait", "decide", "future")

    def __init__(self, decide: Decide[Any], future: asyncio.Future[Any], can_wait: bool) -> None:
        self.decide = decide
        self.future = future
        self.can_wait = can_wait

    def answer(self, answer: Answer[Any]) -> None:
        if not self.future.done():
            self.future.set_result(answer())

    def refuse(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Desk:
    """Decides and writes for one stage, as long as this process keeps it."""

    def __init__(
        self,
        plan: StagePlan,
        author: Author,
        ledger: StageLog,
        clock: Clock,
        steady: Clock,
        nonce: str,
        *,
        resolve: Resolve,
        on_events: Callable[[Sequence[Envelope]], None] = lambda _: None,
    ) -> None:
        """`steady` is the clock of leases; `resolve` makes recorded assignments whole again."""
        self.plan = plan
        self.table = FrameTable(plan, nonce)
        self.stream = Stream(plan.tenant, stage_stream(plan.execution_id, plan.stage_id))
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises when the stage cannot be kept any longer."""
        self._author = author
        self._meter = FrameMeter(plan.kind)
        self._ledger = ledger
        self._clock = clock
        self._steady = steady
        self._nonce = nonce
        self._resolve = resolve
        self._on_events = on_events
        self._pinned: Pinned | None = None
        self._inbox: list[_Ask] = []
        self._parked: list[_Ask] = []
        self._moved = asyncio.Event()
        self._hurry = asyncio.Event()
        self._appended_at = 0.0
        self._tree = Merkle()
        self._version = 0
        self._first_event = 0
        self._doubtful: list[Draft] | None = None
        """What may have been written, or not: nobody has answered."""
        self._is_behind = False
        """The table has what was refused."""

    # --- Beginning

    async def load(self) -> PayloadRef | None:
        """Read what was written so far; what a keeper before this one has pinned, if it gave out any of it."""
        table, self._tree, self._version, self._first_event = FrameTable(self.plan, self._nonce), Merkle(), 0, 0
        if self._pinned is not None:
            table.pin(self._pinned)
        pinned: PayloadRef | None = None
        while page := await self._ledger.read(self.stream, after_version=self._version, limit=_PAGE):
            for item in page:
                event = item.event
                assigned = event.payload.get("set") or {}
                table.fold(event, await self._resolve(assigned) if assigned else {})
                self._count(event)
                if event.event_type == "frame.dispatched" and pinned is None:
                    pinned = event.payload_ref
        table.adopt_hands(self.table)
        self.table = table
        return None if self.plan.kind == "loop" else pinned

    async def open(self, pinned: Pinned | None, placement: Json | None = None) -> None:
        """Take over what was loaded: frames that a keeper before this one had given out are to be run again.

        That is always written down. A keeper before this one that still lives learns from it, at its next append, that
        it is one no longer.
        """
        if pinned is not None:
            self._pinned = pinned
            self.table.pin(pinned)
        for tried in range(_TRIES):
            turn = self.turn()
            turn.begin(self._nonce, placement or {})
            self.table.take_over(turn, "keeper_lost")
            try:
                await self._append(turn)
                return
            except VersionConflict:
                await self.load()  # the keeper before us is not gone yet, and has written something
            except Unavailable:
                await self._clock.sleep(_PAUSE * 4**tried)
                await self.load()
        raise Unavailable(f"stage {self.plan.stage_id} cannot be taken: others keep it, or the ledger is away")

    # --- Asking

    async def ask(self, decide: Decide[T], *, patience: float | None = None, can_wait: bool = False) -> T | None:
        """What `decide` answers, once that is written; None if it was too early for longer than `patience` seconds.

        Who `can_wait` has other things to do meanwhile, so that others may come and share the append.
        """
        if self.lost.done():
            self.lost.result()
        ask = _Ask(decide, asyncio.get_running_loop().create_future(), can_wait)
        self._inbox.append(ask)
        self._moved.set()
        if self._is_urgent(ask):
            self._hurry.set()
        try:
            async with asyncio.timeout(patience):
                found: T = await ask.future
                return found
        except TimeoutError:
            # The answer may have come that moment; else the time that was up has cancelled the wait for it.
            return None if ask.future.cancelled() else ask.future.result()
        finally:
            if not ask.future.done():
                ask.future.cancel()

    async def serve(self) -> None:
        """Decide and write until cancelled, or until the stage is lost."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            while self._inbox:
                await self._gather()
                asks, self._inbox = self._inbox, []
                try:
                    await self._write(asks)
                except (VersionConflict, StreamSealed):
                    self._lose(self._superseded(), asks)
                    return
                except asyncio.CancelledError:
                    self._lose(self._superseded(), asks)
                    raise
                except Exception as error:  # nobody may be left waiting, whatever it was
                    self._lose(error, asks)
                    return

    async def _gather(self) -> None:
        """Let more outcomes come, if the last append was a moment ago and nobody waits for this one."""
        left = self._appended_at + _GATHER_SECONDS - asyncio.get_running_loop().time()
        if left <= 0 or any(map(self._is_urgent, self._inbox)):
            return
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._hurry.wait()

    def _is_urgent(self, ask: _Ask) -> bool:
        """Whether somebody waits for it: the slot itself, or all slots, because each of their frames is here."""
        return not ask.can_wait or len(self._inbox) >= self.table.running

    def close(self) -> None:
        """Answer nobody any more."""
        self._lose(self._superseded())

    def _superseded(self) -> LeaseLost:
        return LeaseLost(f"stage {self.plan.stage_id} is not kept here any more", hint="drop the work")

    def _lose(self, error: Exception, asks: Sequence[_Ask] = ()) -> None:
        if not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()  # it may be that nobody looks
        _refuse([*asks, *self._inbox, *self._parked], error)
        self._inbox, self._parked = [], []

    # --- Writing

    async def _write(self, asks: list[_Ask]) -> None:
        """Answer, park or refuse every one. Raises VersionConflict, StreamSealed if the stage is not ours any more."""
        for tried in range(_TRIES):
            try:
                await self._catch_up()
                while asks:
                    asks = await self._write_some(asks)
                return
            except Unavailable as error:
                if tried == _TRIES - 1:
                    _refuse(asks, error)
                    return
                await self._clock.sleep(_PAUSE * 4**tried)
            except InvalidEvent as error:  # what one of them said cannot be an event; the others must not suffer
                self._is_behind = True
                if len(asks) == 1:
                    asks[0].refuse(error)
                    return
                for ask in asks:
                    await self._write([ask])
                return

    async def _write_some(self, asks: list[_Ask]) -> list[_Ask]:
        """Decide as many as fit one append; the others are given back."""
        turn, taken, answers = self.turn(), 0, list[tuple[_Ask, Answer[Any]]]()
        parked: list[_Ask] = []
        for ask in asks:
            if len(turn.drafts) >= _MOST_DRAFTS:
                break
            taken += 1
            if ask.future.done():
                continue  # whoever asked is gone, or was refused the last time this was tried
            try:
                answer = ask.decide(self.table, turn)
            except NoetlError as error:
                ask.refuse(error)
                continue
            if answer is None:
                parked.append(ask)
            else:
                answers.append((ask, answer))
        await self._append(turn)
        for ask, answer in answers:
            ask.answer(answer)
        self._park(parked, has_changed=turn.is_news or bool(turn.drafts))
        return asks[taken:]

    def _park(self, parked: Sequence[_Ask], *, has_changed: bool) -> None:
        """Have those who were too early wait, and those who did ask again if something has changed."""
        self._parked += parked
        if has_changed:  # perhaps after one of them was decided, in the same turn
            self._inbox += [ask for ask in self._parked if not ask.future.done()]
            self._parked = []
        if self._inbox:
            self._moved.set()

    async def _append(self, turn: Turn) -> None:
        if not turn.drafts:
            return
        self._doubtful = turn.drafts
        batch = Batch(stream=self.stream, drafts=turn.drafts, expected_version=self._version)
        try:
            events = await self._ledger.append([batch])
        except (VersionConflict, StreamSealed, InvalidEvent):
            self._doubtful = None  # refused, so nothing was written
            raise
        self._doubtful = None
        self._appended_at = asyncio.get_running_loop().time()
        for event in events:
            self._count(event)
        self.table.settle(turn, events)
        if metrics.is_installed():
            self._meter.note(events)
        self._on_events(events)

    async def _catch_up(self) -> None:
        """Make the table what the log says, where it may be something else."""
        if self._doubtful is not None:
            await self._check_doubtful()
        if self._is_behind:
            await self.load()
            turn = self.turn()
            self.table.take_over(turn, "unanswered")
            await self._append(turn)
            self._is_behind = False

    async def _check_doubtful(self) -> None:
        """Find out what was written of an append that nobody has answered. Raises VersionConflict for anything else."""
        drafts, before = self._doubtful or [], self._version
        found = [
            item.event for item in await self._ledger.read(self.stream, after_version=before, limit=len(drafts) + 1)
        ]
        if found and not _is_said(drafts, found):
            raise VersionConflict(self.stream.stream_id, before, found[-1].event_id)
        self._doubtful, self._is_behind = None, True
        if found:
            self._on_events(found)

    def turn(self) -> Turn:
        """A decision that is to be made now."""
        until = self._clock.now() + int(self.plan.policy.lease_seconds * _SECOND)
        return Turn(self.plan, self._author, now=self._steady.now(), lease_until=format_time(until))

    def _count(self, event: Envelope) -> None:
        self._tree.add(event.envelope_checksum)
        self._version = event.stream_version
        self._first_event = self._first_event or event.event_id

    # --- Ending

    async def seal(self) -> Seal:
        """What vouches for all events of the stage. Nothing may be written after it was asked for."""
        first = await self._position(self._first_event)
        last = await self._position(self._version)
        return Seal(
            stream_id=self.stream.stream_id,
            root=self._tree.root(),
            count=self._tree.count,
            first_event_id=self._first_event,
            last_event_id=self._version,
            first_position=first,
            last_position=last,
            peaks=self._tree.peaks,
            final=True,
        )

    async def _position(self, event_id: int) -> int:
        if not event_id:
            return 0
        found = await self._ledger.read(self.stream, after_version=event_id - 1, limit=1)
        return found[0].position


def _refuse(asks: Sequence[_Ask], error: Exception) -> None:
    for ask in asks:
        with contextlib.suppress(asyncio.InvalidStateError):
            ask.refuse(error)


def _is_said(drafts: Sequence[Draft], events: Sequence[Envelope]) -> bool:
    """Whether the log has these drafts, and nothing else. The ends of leases tell one keeper's from another's."""
    return len(drafts) == len(events) and all(
        (draft.event_type, draft.attempt, draft.meta, draft.payload)
        == (event.event_type, event.attempt, event.meta, event.payload)
        for draft, event in zip(drafts, events, strict=True)
    )
