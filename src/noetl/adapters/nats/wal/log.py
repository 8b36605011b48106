"""One process's view of the log: it follows the stream, and judges what comes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence

import msgspec

from noetl.adapters.nats.wal.index import RECENT_EVENTS, Judgement, Piece, RootEnd, WalIndex, root_of_event
from noetl.adapters.nats.wal.messages import PART, Message, read
from noetl.adapters.nats.wal.past import Ahead, Past
from noetl.adapters.nats.wal.stream import Tip, WalStream
from noetl.errors import Corruption, IntegrityMismatch, InvalidInput, NoetlError, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.observe import metrics
from noetl.ports.wal import Mark, Materialized, Standing

__all__ = ["Outcome", "WalLog"]

_WAIT_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
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
        """Return when a message was judged. Raises Unavailable if nothing moves for as long as a call may take."""
        at = -1
        while self.index.seq < seq and self._failure is None:
            if self.index.seq == at:
                raise Unavailable(
                    f"the log is read up to message {at}, and for {self.stream.connection.timeout:g} s no further; "
                    f"it ends at {seq}",
                    hint="NATS or the database is slow, or away; try again",
                )
            at = self.index.seq
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.stream.connection.timeout), self._moved:
                    while self.index.seq < seq and self._failure is None:
                        await self._moved.wait()
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
        while True:
            try:
                async for page in self.stream.follow(self.index.seq, _WAIT_SECONDS):
                    if not await self._take(page):
                        break
            except Ahead:
                await self._jump()
            except Unavailable as error:
                _log.debug("%s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
            except NoetlError as error:
                _log.error("the log is not read any further: %s", error)
                self._failure = error
                for waiting in self._waiting.values():
                    if not waiting.done():
                        waiting.set_exception(error)
                await self.wake()
                return

    async def _take(self, page: Iterable[tuple[int, object]]) -> bool:
        """Judge what has come; False if something is missing before it."""
        for seq, raw in page:
            async with self._judging:
                if seq <= self.index.seq:
                    continue
                if seq > self.index.seq + 1:
                    tip = await self.stream.tip()
                    if tip.first > self.index.seq + 1:
                        raise Ahead
                    if await self.stream.get(self.index.seq + 1) is None:
                        raise Corruption(
                            f"message {self.index.seq + 1} of stream {self.stream.name} is missing",
                            hint="restore the data of NATS from a backup",
                        )
                    return False
                try:
                    message = read(raw.subject, raw.data, raw.headers)  # type: ignore[attr-defined]  # a message
                except InvalidInput:
                    await self._pass(seq, raw.subject)  # type: ignore[attr-defined]
                    continue
                await self._judge(seq, message, None)
        return True

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
        self._check_seal(seq, found[0])
        return found[0].events()

    def _check_seal(self, seq: int, message: Message) -> None:
        self.keyed = message.mac is not None
        if self._key is not None and not message.is_sealed_with(self._key):
            raise IntegrityMismatch(
                f"message {seq} of stream {self.stream.name} is not sealed with the key of this wallet",
                hint="restore the wallet that belongs to this log; if it is the right one, the message is forged",
            )

    async def _tidy(self) -> None:
        """Now and then forget what the table has."""
        while True:
            await asyncio.sleep(self._tidy_seconds)
            with contextlib.suppress(Unavailable):
                standing = await self.table.standing()
                if standing.mark is not None:
                    async with self._judging:
                        pieces, keys = self.index.trim(standing.mark.position)
                        self.past.add(pieces, keys)
