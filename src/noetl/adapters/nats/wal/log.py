"""One process's view of the log: it follows the stream, and judges what comes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence

import msgspec

from noetl.adapters.nats.wal.index import RECENT_EVENTS, Judgement, Piece, RootEnd, WalIndex, root_of_event
from noetl.adapters.nats.wal.messages import PART, Message
from noetl.adapters.nats.wal.past import Ahead, Past
from noetl.adapters.nats.wal.stream import Stored, Tip, WalStream
from noetl.errors import Corruption, IntegrityMismatch, InvalidInput, NoetlError, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.observe import metrics
from noetl.ports.wal import Mark, Materialized, Standing

__all__ = ["Outcome", "WalLog"]

_WAIT_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_SOON_SECONDS = 0.1
_log = logging.getLogger("noetl.wal")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an append. `passed`: it was not judged here, the table knows."""

    counts: bool = False
    passed: bool = False
    refusal: str | None = None


class WalLog:
    """Judges messages in their order, one at a time, whoever brings them."""

    def __init__(
        self,
        stream: WalStream,
        table: Materialized,
        key: bytes | None,
        *,
        recent: int = RECENT_EVENTS,
        tidy_seconds: float = 1.0,
    ) -> None:
        self.stream = stream
        self.table = table
        self._key = key
        self._recent = recent
        self._tidy_seconds = tidy_seconds
        self._judging = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._waiting: dict[str, asyncio.Future[Outcome]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: NoetlError | None = None
        self.life = ""
        self.keyed = False
        """Whether what was read last was sealed with a key."""

    index: WalIndex
    past: Past

    async def open(self) -> None:
        """Begin where the table is. Raises Corruption if the stream is not the one that belongs to it."""
        standing = await self.table.standing()
        tip = await self.stream.ensure(begins=standing.head.position)
        if standing.mark is None:
            await self._claim(tip, standing)
        await self._begin()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._tidy())]
        await self.sync()

    async def close(self) -> None:
        """Follow no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for waiting in self._waiting.values():
            waiting.cancel()
        await self.wake()

    async def wake(self) -> None:
        """Let those look who wait for more."""
        async with self._moved:
            self._moved.notify_all()

    async def wait(self, position: int, seconds: float) -> None:
        """Return when the log is beyond a position, or after a while. Raises what has stopped us."""
        self._check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._moved:
                while self.index.position <= position and self._failure is None:
                    await self._moved.wait()
        self._check()

    async def sync(self) -> None:
        """Return when everything was judged that anybody has been told is committed. Raises Unavailable, Corruption."""
        self._check()
        reached = self.index.seq
        tip = await self.stream.tip()
        self._check_tip(tip, reached)
        await self.reach(tip.last)

    async def reach(self, seq: int) -> None:
        """Return when a message was judged. Raises Unavailable.

        What others have stored comes by itself, soon. If it does not, because it was lost on the way, it is fetched.
        """
        while self.index.seq < seq and self._failure is None:
            at = self.index.seq
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SOON_SECONDS), self._moved:
                    while self.index.seq == at and self._failure is None:
                        await self._moved.wait()
            if self.index.seq == at:
                await self._fetch(at + 1)
        self._check()

    def expect(self, nonce: str) -> asyncio.Future[Outcome]:
        """What will become of an append that is about to be published."""
        self._waiting[nonce] = asyncio.get_running_loop().create_future()
        return self._waiting[nonce]

    def forget(self, nonce: str) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(nonce, None)

    async def judge_own(self, seq: int, message: Message, events: Sequence[Envelope]) -> None:
        """A message that this process has put in, if it is the next one; otherwise those before it come first."""
        async with self._judging:
            if self._failure is None and self.index.seq == seq - 1:
                with contextlib.suppress(Ahead, Unavailable):  # then the follower comes to it
                    await self._judge(seq, message, events)

    async def know(self, root: Stream) -> None:
        """Learn where a root ends. Raises Unavailable."""
        while root not in self.index.roots:
            if not self.past.may_have(root):
                self.index.roots[root] = RootEnd()
                return
            index = self.index
            try:
                end = await self.past.end_of(root, index)
            except Ahead:
                await self.sync()
                continue
            if self.index is index:  # what has come meanwhile would have made it known
                index.roots.setdefault(root, end)

    async def events_of(self, piece: Piece) -> Sequence[Envelope]:
        """The events of a piece, read again if they are not held. Raises Unavailable, Corruption."""
        if piece.events is not None:
            return piece.events
        return await self._part(piece.seq)

    async def _claim(self, tip: Tip, standing: Standing) -> None:
        """Make the database the table of this log: of a new one, or of one that can be copied from its beginning."""
        at = standing.head.position
        if tip.begins != at or tip.first > 1:
            raise IntegrityMismatch(
                f"stream {self.stream.name} holds a log that begins after position {tip.begins} with message "
                f"{tip.first}; the database ends at position {at} and is not the table of it",
                hint="use the database that belongs to it, another place.region, or delete the stream",
            )
        await self.table.claim(Mark(stream=self.stream.name, life=tip.life, seq=0, position=at))

    async def _begin(self) -> None:
        standing = await self.table.standing()
        if standing.mark is None:
            raise Corruption("the database has forgotten that it is the table of a log", hint="restore it")
        self.life = standing.mark.life
        tip = await self.stream.tip()
        if standing.mark.stream != self.stream.name or tip.life != self.life:
            raise Corruption(
                f"the database belongs to the log in stream {standing.mark.stream}, made at {self.life}; "
                f"NATS at {self.stream.connection.address} has one made at {tip.life}",
                hint="the stream was deleted, or is another one: restore the data of NATS from a backup",
            )
        if tip.last < standing.mark.seq or tip.first > standing.mark.seq + 1:
            raise Corruption(
                f"stream {self.stream.name} has messages {tip.first} to {tip.last}, the table ends at "
                f"{standing.mark.seq}: what lies between is lost",
                hint="restore the data of NATS from a backup",
            )
        self.index = WalIndex(standing.head, standing.mark.seq, recent=self._recent)
        self.past = Past(self.table)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _check_tip(self, tip: Tip, reached: int) -> None:
        if tip.life != self.life or tip.last < reached:
            raise Corruption(
                f"stream {self.stream.name} ends at message {tip.last}, but had reached {reached}: its end is missing",
                hint="restore the data of NATS from a backup, and set sync_interval: always",
            )

    async def _follow(self) -> None:
        while self._failure is None:
            try:
                lives = self.stream.connection.lives
                async for page in self.stream.follow(self.index.seq, _WAIT_SECONDS):
                    if not await self._take(page):
                        await self._fetch(self.index.seq + 1)
                        break
                    if lives != self.stream.connection.lives:
                        break  # what was sent over a connection that is lost does not come again by itself
                    if not page and (await self.stream.tip()).last > self.index.seq:
                        break
            except Ahead:
                await self._jump()
            except Unavailable as error:
                _log.debug("%s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
            except NoetlError as error:
                await self._fail(error)
                return

    async def _fail(self, error: NoetlError) -> None:
        _log.error("the log is not read any further: %s", error)
        self._failure = error
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        await self.wake()

    async def _take(self, page: Iterable[Stored]) -> bool:
        """Judge what has come; False if something is missing before it."""
        for stored in page:
            async with self._judging:
                if stored.seq > self.index.seq + 1:
                    return False
                await self._judge_stored(stored)
        return True

    async def _fetch(self, seq: int) -> None:
        """Judge a message that did not come by itself. Raises Unavailable."""
        try:
            async with self._judging:
                if self.index.seq != seq - 1:
                    return
                stored = await self.stream.get(seq)
                if stored is not None:
                    await self._judge_stored(stored)
                    return
                tip = await self.stream.tip()
                if tip.first <= seq <= tip.last:
                    raise Corruption(
                        f"message {seq} of stream {self.stream.name} is missing",
                        hint="restore the data of NATS from a backup",
                    )
                raise Ahead
        except Ahead:
            await self._jump()
        except Unavailable:
            raise
        except NoetlError as error:
            await self._fail(error)

    async def _judge_stored(self, stored: Stored) -> None:
        if stored.seq <= self.index.seq:
            return
        try:
            message = stored.message()
        except InvalidInput:
            await self._pass(stored.seq, stored.subject)
            return
        await self._judge(stored.seq, message, None)

    async def _jump(self) -> None:
        """Go on from where the table is; who waits for an append that was passed over has to look there."""
        async with self._judging:
            while True:
                try:
                    await self._begin()
                    break
                except Unavailable:
                    await asyncio.sleep(_PAUSE_SECONDS)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(Outcome(passed=True))
        await self.wake()

    async def _pass(self, seq: int, subject: str | None, refusal: str | None = None, nonce: str = "") -> None:
        self.index.pass_over(seq, subject)
        if refusal is not None:
            metrics.count("noetl_wal_void_total")
        await self._resolve(nonce, Outcome(refusal=refusal))

    async def _resolve(self, nonce: str, outcome: Outcome) -> None:
        waiting = self._waiting.get(nonce)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)
        await self.wake()

    async def _judge(self, seq: int, message: Message, events: Sequence[Envelope] | None) -> None:
        """Decide whether a message counts. Raises Ahead, Unavailable; IntegrityMismatch for a forged one."""
        if message.subject == PART:
            await self._pass(seq, None)
            return
        self._check_seal(seq, message)
        try:
            own = message.events() if events is None else events
            parts = [(part, await self._part(part)) for part in message.parts]
        except InvalidInput as error:
            await self._pass(seq, message.subject, error.message, message.nonce)
            return
        every = [*(event for _, part in parts for event in part), *own]
        await self._prepare(message, every)
        guards = [(Stream(every[0].tenant_id, stream_id), version) for stream_id, version in message.guards]
        judgement = Judgement(self.index, adopted=message.adopted, guards=guards)
        for part, some in parts:
            judgement.add(part, some)
        judgement.add(seq, own)
        if judgement.refusal is not None:
            await self._pass(seq, message.subject, judgement.refusal, message.nonce)
            return
        self.index.take(seq, message, judgement)
        await self._resolve(message.nonce, Outcome(counts=True))

    async def _prepare(self, message: Message, events: Sequence[Envelope]) -> None:
        """Learn what a verdict depends on."""
        await self.past.learn()
        roots = {root_of_event(event) for event in events}
        roots |= {Stream(events[0].tenant_id, root_of(stream_id)) for stream_id, _ in message.guards}
        for root in roots:
            if root not in self.index.roots:
                self.index.roots[root] = (
                    await self.past.end_of(root, self.index) if self.past.may_have(root) else RootEnd()
                )
        self.index.taken_keys.clear()
        for event in events:
            key, tenant_id = event.idempotency_key, event.tenant_id
            if key is None or (tenant_id, key) in self.index.keys or not self.past.may_have_key(tenant_id, key):
                continue
            known = await self.past.key(tenant_id, key)
            if known is not None and known.position <= self.index.position:
                self.index.taken_keys.add((tenant_id, key))

    async def _part(self, seq: int) -> Sequence[Envelope]:
        found = await self.stream.get(seq)
        if found is None:
            raise Corruption(f"message {seq} of stream {self.stream.name} is gone, and the log needs it")
        message = found.message()
        self._check_seal(seq, message)
        return message.events()

    def _check_seal(self, seq: int, message: Message) -> None:
        self.keyed = message.mac is not None
        if self._key is not None and not message.is_sealed_with(self._key):
            raise IntegrityMismatch(
                f"message {seq} of stream {self.stream.name} is not sealed with the key of this wallet",
                hint="restore the wallet that belongs to this log; if it is the right one, the message is forged",
            )

    async def _tidy(self) -> None:
        """Now and then forget what the table has; and get to know what that is, before it may be away."""
        while True:
            await asyncio.sleep(self._tidy_seconds)
            with contextlib.suppress(Unavailable):
                await self.past.learn()
                standing = await self.table.standing()
                if standing.mark is not None:
                    async with self._judging:
                        pieces, keys = self.index.trim(standing.mark.position)
                        self.past.add(pieces, keys)
