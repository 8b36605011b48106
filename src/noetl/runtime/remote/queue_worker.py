"""A worker that lives on a queue: it takes no more than it can work on, and nothing once it is to go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

import msgspec

from noetl.errors import Conflict, Forbidden, LeaseLost, NoetlError, NotFound, Unauthenticated, Unavailable
from noetl.kernel.event import Json
from noetl.observe import metrics, traces
from noetl.ports.clock import Clock
from noetl.ports.queue import CommandQueue, Depth, LeasedCommand
from noetl.runtime.pool import outcome_of, said_of
from noetl.runtime.remote.bench import Bench
from noetl.runtime.remote.beside import Beside
from noetl.runtime.remote.client import Hand, NotHere, RemoteControlPlane
from noetl.runtime.remote.prints import Prints
from noetl.runtime.remote.secrets import IN_HAND
from noetl.runtime.requests import Issued

__all__ = ["QueueWorker", "Tally"]

_WAIT_SECONDS = 2.0
_AGAIN_SECONDS = 2.0
_PATIENT_DELIVERIES = 5
"""A delivery that finds its command in other hands so often is dropped: these hands are alive, and if they fail the
reaper asks for the command anew."""

_log = logging.getLogger("noetl.worker")


class Tally(msgspec.Struct, kw_only=True):
    """What a worker has done."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    dropped: int = 0
    declined: int = 0
    last_error: str | None = None


def _span(leased: LeasedCommand) -> traces.Scope:
    """From a delivery to its settlement, in the trace that the message tells of."""
    command = leased.command
    if not command.traceparent:
        return traces.NOWHERE
    issued = Issued(
        execution_id=command.execution_id, command_id=command.command_id, step=command.step, kind=command.kind
    )
    return traces.within(traces.read(command.carrier), "noetl.command", said_of(issued))


class QueueWorker:
    """Takes commands of some pools, runs up to `concurrency` at once, and reports.

    The queue's own lease and the command's lease are renewed together while a command runs. A command is settled with
    the queue only when the server has its report, or does not want one: killed at any moment, it comes again.
    """

    def __init__(
        self,
        queue: CommandQueue,
        control: RemoteControlPlane,
        bench: Bench,
        clock: Clock,
        worker_id: str,
        *,
        pools: Sequence[str],
        concurrency: int,
        lease_seconds: float,
        wait_seconds: float = _WAIT_SECONDS,
        prints: Prints | None = None,
    ) -> None:
        """It asks the queue again every `wait_seconds`, also whether it is to stop. `prints` hears its tasks."""
        self._prints = prints or Prints(clock)
        self._wait_seconds = wait_seconds
        self._queue = queue
        self._control = control
        self._bench = bench
        self._clock = clock
        self._worker_id = worker_id
        self._pools = tuple(pools)
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._beat_seconds = min(lease_seconds, queue.lease_seconds) / 4
        self._free = asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._holding: set[asyncio.Task[None] | None] = set()
        """Those that have a slot."""
        self._in_hand: set[tuple[str, int, int]] = set()
        """The events whose commands are being worked on here: the server takes a worker that asks twice for one that
        has not heard its answer."""
        self._stop = asyncio.Event()
        self._is_queue_away = False
        self.refusal: NoetlError | None = None
        """Why the server will have nothing more to do with this worker."""
        self.tally = Tally()

    @property
    def busy(self) -> int:
        """How many commands are being worked on."""
        return len(self._tasks)

    def stop(self) -> None:
        """Take nothing more."""
        self._stop.set()

    async def run(self, *, drain: float) -> None:
        """Work until told to stop; then let what runs finish, but no longer than `drain` seconds.

        What is not finished by then is given back, and others have it at once.
        """
        takers = [asyncio.create_task(self._take(pool)) for pool in self._pools]
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopping, *takers], return_when=asyncio.FIRST_COMPLETED)
        self.stop()
        await asyncio.wait(takers, timeout=self._wait_seconds + 1)  # what the queue hands out meanwhile is given back
        for taker in takers:
            taker.cancel()
        ends = await asyncio.gather(stopping, *takers, return_exceptions=True)
        await self._finish(drain)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _finish(self, drain: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def depths(self) -> dict[str, Depth]:
        """What each of its pools has to do. Raises Unavailable."""
        return {pool: await self._queue.depth(pool) for pool in self._pools}

    def summary(self) -> Json:
        """How it goes."""
        found: Json = msgspec.to_builtins(self.tally)
        return {"ok": self.tally.last_error is None, "busy": self.busy, "concurrency": self._concurrency, **found}

    async def _take(self, pool: str) -> None:
        while not self._stop.is_set():
            await self._free.acquire()
            taken = 0
            try:
                taken = await self._begin(pool, 1 + self._spare())
                if self._is_queue_away:
                    self._is_queue_away, self.tally.last_error = False, None
            except Unavailable as error:
                self._is_queue_away = True
                if self.tally.last_error != error.message:
                    _log.warning("%s", error)
                self.tally.last_error = error.message
                await self._clock.sleep(_AGAIN_SECONDS)
            finally:
                if not taken:
                    self._free.release()

    def _spare(self) -> int:
        """Slots beside the one that is held, of which this pool may have its share."""
        return (self._concurrency - 1 - len(self._holding)) // len(self._pools)

    async def _begin(self, pool: str, most: int) -> int:
        """Take up to so many commands, the first of which has its slot."""
        found = await self._queue.lease(pool, limit=max(1, most), wait=self._wait_seconds)
        if self._stop.is_set():
            for leased in found:
                await self._queue.nack(leased)
            return 0
        for place, leased in enumerate(found):
            if place:
                await self._free.acquire()
            task = asyncio.create_task(self._work(leased))
            self._tasks.add(task)
            self._holding.add(task)
            task.add_done_callback(self._end)
        await asyncio.sleep(0)  # they begin before the next one is asked for
        return len(found)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._let_go(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a command was left to others", exc_info=error)

    def _let_go(self, task: asyncio.Task[None] | None) -> None:
        """The slot of a command is free: it has ended, or needs none."""
        if task in self._holding:
            self._holding.discard(task)
            self._free.release()

    async def _work(self, leased: LeasedCommand) -> None:
        """From a delivery to its settlement. What cannot be settled comes again, and the server knows better then."""
        metrics.shift("noetl_worker_slots_busy", 1)
        try:
            with _span(leased):
                delay = await self._outcome(leased)
            with contextlib.suppress(Unavailable):
                await (self._queue.ack(leased) if delay is None else self._queue.nack(leased, delay=delay))
        except asyncio.CancelledError:
            with contextlib.suppress(Unavailable):
                await self._queue.nack(leased)
            raise
        finally:
            metrics.shift("noetl_worker_slots_busy", -1)

    async def _outcome(self, leased: LeasedCommand) -> float | None:
        """After how many seconds the delivery is wanted again; None if it is done with."""
        command = leased.command
        name = (command.tenant_id, command.execution_id, command.event_id)
        if name in self._in_hand:
            return self._taken(leased)
        self._in_hand.add(name)
        try:
            return await self._tried(leased)
        finally:
            self._in_hand.discard(name)

    def _taken(self, leased: LeasedCommand) -> float | None:
        """The same for a delivery whose command is in some other hands, or here already."""
        return None if leased.attempts >= _PATIENT_DELIVERIES else self._lease_seconds / 2

    async def _tried(self, leased: LeasedCommand) -> float | None:
        command = leased.command
        try:
            hand = await self._control.claim(command, self._worker_id)
            if hand.claim.work.stage is not None:
                self._let_go(asyncio.current_task())  # it has slots of its own, and its rows may call what needs one
            await self._run(leased, hand)
            self.tally.last_error = None
            return None
        except LeaseLost as error:
            self.tally.lost += 1
            _log.warning("command %s was lost: %s", command.command_id, error.message)
            return self._lease_seconds / 2  # whoever asks for it then hears what has become of it
        except NotFound:
            self.tally.dropped += 1
            return None
        except NotHere as error:
            return await self._left(leased, error)
        except Conflict:
            return self._taken(leased)
        except (Unauthenticated, Forbidden) as error:
            self.refusal = error
            self.stop()
            return 0.0
        except NoetlError as error:
            self.tally.failed += 1
            self.tally.last_error = error.message
            _log.warning("command %s is left to others: %s", command.command_id, error)
            return _AGAIN_SECONDS
        except Exception as error:  # a command that nobody settles would wait for its lease
            self.tally.failed += 1
            self.tally.last_error = f"{type(error).__name__}: {error}"
            _log.error("command %s is left to others", command.command_id, exc_info=error)
            return _AGAIN_SECONDS

    async def _left(self, leased: LeasedCommand, error: NotHere) -> float | None:
        """Leave a command to others. Deliveries are counted, and this may go on for long: then it is put in anew."""
        self.tally.declined += 1
        _log.info("command %s is left to others: %s", leased.command.command_id, error.message)
        if leased.attempts < _PATIENT_DELIVERIES:
            return error.seconds
        again = msgspec.structs.replace(leased.command, round=leased.command.round + 1)
        await self._queue.enqueue([again])
        return None

    async def _run(self, leased: LeasedCommand, hand: Hand) -> None:
        """Run a command that is in hand, and report. Raises LeaseLost as soon as it is lost, whatever is being done."""
        try:
            async with Beside(self._beat(leased, hand)) as keeping:
                await self._said(hand, keeping)
        except asyncio.CancelledError:
            with contextlib.suppress(NoetlError):
                await self._control.release(hand)
            raise
        finally:
            self._prints.take(hand.command.command_id)

    async def _said(self, hand: Hand, keeping: Beside) -> None:
        IN_HAND.set(hand)

        async def fetch(_: int, step: str, reference: Json) -> object:
            return await self._control.result(hand, step, reference)

        began = time.perf_counter()
        said = await self._bench.carry_out(hand, fetch)
        keeping.let()  # a report that was taken ends the lease, too
        await self._control.report(hand, said, self._prints.take(hand.command.command_id))
        metrics.observe("noetl_command_run_seconds", time.perf_counter() - began, hand.command.kind)
        metrics.count("noetl_commands_total", hand.command.kind, outcome_of(said))
        self.tally.done += 1

    async def _beat(self, leased: LeasedCommand, hand: Hand) -> None:
        """Keep both leases. Raises LeaseLost; that nobody answers for a while loses nothing yet."""
        is_first = True
        while True:
            await self._clock.sleep(self._beat_seconds)
            prints = self._prints.take(hand.command.command_id)
            try:
                await self._control.heartbeat(hand, is_first=is_first, prints=prints)
                is_first, prints = False, []
                await self._queue.extend(leased)
            except (LeaseLost, NotFound) as error:
                raise LeaseLost(error.message, hint=error.hint) from None
            except NoetlError as error:
                self._prints.put_back(hand.command.command_id, prints)
                _log.warning("command %s could not be kept: %s", hand.command.command_id, error)
