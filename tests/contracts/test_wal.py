"""What the ledger on JetStream does beyond any ledger: several writers, lost answers, forgeries, a purge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.materialized import MemoryMaterialized
from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.ledger import NatsLedger
from noetl.adapters.nats.wal.messages import ADOPTED, PART, encode
from noetl.adapters.nats.wal.retention import WalRetention
from noetl.adapters.nats.wal.stream import Moved, WalStream
from noetl.errors import (
    Corruption,
    IdempotencyMismatch,
    IntegrityMismatch,
    InvalidInput,
    StorageFull,
    StreamSealed,
    Unavailable,
    VersionConflict,
)
from noetl.ports.ledger import Stream
from noetl.runtime.clock import SystemClock
from noetl.runtime.materializer import Materializer
from tests.contracts.ledger import KEY, everything, frame, keyed, seal_of, write
from tests.contracts.proof import prove
from tests.services.nats import NatsServer, nats_server, nats_url, own_nats
from tests.services.proxy import proxied
from tests.unit.kernel.drafts import STAGE, STREAM, TELEMETRY, batch, draft

__all__ = ["nats_server", "nats_url", "own_nats"]

# A client of NATS whose connection is cut while it greets the server drops the stream without closing it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")

Open = Callable[..., Awaitable[NatsLedger]]
OTHER = Stream("acme", "execution/777")


@pytest.fixture
def table(clock: VirtualClock) -> MemoryMaterialized:
    return MemoryMaterialized(clock, mac_key=KEY)


@pytest.fixture
async def opens(nats_url: str, table: MemoryMaterialized, clock: VirtualClock) -> AsyncIterator[Open]:
    """Opens the one log once more, on a connection of its own, as another process would."""
    async with contextlib.AsyncExitStack() as opened:

        async def open_one(url: str = nats_url, **options: Any) -> NatsLedger:
            connection = await opened.enter_async_context(connect(url, patience=options.pop("call", 5.0)))
            ledger = NatsLedger(WalStream(connection), table, clock, **{"mac_key": KEY, **options})
            await ledger.open()
            opened.push_async_callback(ledger.close)
            return ledger

        yield open_one


async def settled(*appends: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*appends, return_exceptions=True))


async def test_two_writers_of_one_stream_never_both_win(opens: Open) -> None:
    ledgers = [await opens() for _ in range(3)]
    for turn in range(20):
        tries = [one.append([batch(draft(payload={"n": n}), expected_version=turn)]) for n, one in enumerate(ledgers)]
        outcomes = await settled(*tries)
        assert sorted(isinstance(one, VersionConflict) for one in outcomes) == [False, True, True]
    for ledger in ledgers:
        assert await prove(ledger) == 20
    assert await everything(ledgers[0]) == await everything(ledgers[2])


async def test_writers_that_expect_nothing_all_get_through(opens: Open) -> None:
    ledgers = [await opens() for _ in range(3)]
    for _ in range(5):
        await asyncio.gather(
            *(write(one, draft()) for one in ledgers),
            *(write(one, frame(), frame(), stream=STAGE) for one in ledgers),
            *(write(one, draft("worker.heartbeat"), stream=TELEMETRY) for one in ledgers),
        )
    for ledger in ledgers:
        assert await prove(ledger) == 60


async def test_a_key_that_two_executions_want_at_once_stands_for_one_fact(opens: Open) -> None:
    """Their subjects are different, so JetStream takes both: the first one counts, and everybody says so."""
    first, second = await opens(), await opens()
    for turn in range(15):
        outcomes = await settled(
            write(first, *keyed(f"k{turn}")),
            write(second, *keyed(f"k{turn}", execution_id=777), stream=OTHER),
        )
        assert sorted(isinstance(one, IdempotencyMismatch) for one in outcomes) == [False, True], outcomes
    assert await prove(first) == await prove(second) == 15


async def test_a_seal_and_a_frame_at_once_never_both_count(opens: Open) -> None:
    first, second = await opens(), await opens()
    for turn in range(10):
        stage = Stream("acme", f"execution/4101/stage/{turn}")
        await write(first, frame(), stream=stage)
        payload = await seal_of(first, stage, final=True)
        outcomes = await settled(
            write(first, draft("stage.closed", aggregate_type="stage", stage_id=turn, payload=payload)),
            write(second, frame(), stream=stage),
        )
        assert sum(isinstance(one, VersionConflict | StreamSealed) for one in outcomes) == 1, outcomes
    await prove(first)
    assert await first.ledger_head() == await second.ledger_head()


async def test_an_append_larger_than_a_message_is_stored_whole(opens: Open) -> None:
    ledger, other = await opens(), await opens()
    large = [draft(payload={"n": n, "text": "x" * 90_000}, idempotency_key=f"k{n}") for n in range(40)]
    written = await write(ledger, *large)
    assert await everything(other) == written
    assert await write(other, *large) == written
    assert await prove(other) == 40


async def test_parts_without_their_append_mean_nothing(opens: Open) -> None:
    ledger = await opens()
    written = await write(ledger, draft())
    await ledger.stream.publish(encode(PART, written, "n", codec="json", key=KEY), last=None)
    await write(ledger, draft())
    assert await prove(await opens()) == 2


async def test_an_answer_that_is_lost_is_looked_up(nats_url: str, opens: Open) -> None:
    """The connection is cut when the next answer comes, again and again: nothing is lost and nothing written twice."""
    port = int(nats_url.rpartition(":")[2])
    async with proxied(port) as proxy:

        async def heal() -> None:
            before = proxy.cuts
            for _ in range(3000):
                if proxy.cuts != before:
                    break
                await asyncio.sleep(0.01)
            proxy.cut_answers_after = None

        ledger = await opens(f"{nats_url.rpartition(':')[0]}:{proxy.port}", call=2.0, patience=60.0)
        for n in range(12):
            healing = asyncio.create_task(heal())
            proxy.cut_answers_after = 0
            await ledger.append([batch(draft(payload={"n": n}), expected_version=n)])
            await healing
        assert proxy.cuts >= 12
    assert [event.payload["n"] for event in await everything(await opens())] == list(range(12))


async def test_a_message_without_the_key_stops_whoever_has_it(opens: Open) -> None:
    ledger = await opens()
    (event,) = await write(ledger, draft())
    stranger = b"another key, of 32 bytes as well"
    forged = encode("noetl.wal.acme.retail.4101.s0001", [event], "n", codec="json", key=stranger)
    await ledger.stream.publish(forged, last=None)
    with pytest.raises(IntegrityMismatch, match="not sealed with the key"):
        await ledger.position()
    with pytest.raises(IntegrityMismatch):
        await write(ledger, draft())
    with pytest.raises(IntegrityMismatch, match="message 2"):
        await opens()


async def test_without_the_key_of_a_sealed_log_nothing_is_written(opens: Open) -> None:
    await write(await opens(), draft())
    reader = await opens(mac_key=None)
    assert len(await everything(reader)) == 1
    with pytest.raises(InvalidInput, match="sealed with a key"):
        await write(reader, draft())
    with pytest.raises(InvalidInput, match="nothing was copied"):
        await reader.pages(0, 10)


async def test_what_is_no_append_is_passed_over(opens: Open) -> None:
    ledger = await opens()
    await write(ledger, draft())
    await ledger.stream.connection.streams.publish("noetl.wal.somebody", b"hello")
    await write(ledger, draft())
    assert await prove(ledger) == 2


async def test_an_adoption_that_somebody_overtakes_is_refused_whole(opens: Open, clock: VirtualClock) -> None:
    ledger, other = await opens(), await opens()
    source = MemoryMaterialized(clock, mac_key=KEY)
    events = await write(source, draft(payload={"n": 1}), draft())
    late = encode(ADOPTED, events, "late", codec="json", key=KEY)
    await write(other, draft())
    await ledger.stream.publish(late, last=None)
    assert await prove(ledger) == await prove(other) == 1
    with pytest.raises(IntegrityMismatch, match="histories differ"):
        await ledger.adopt(events)


async def test_a_subject_that_has_moved_takes_nothing(opens: Open) -> None:
    ledger = await opens()
    (event,) = await write(ledger, draft())
    message = encode("noetl.wal.acme.retail.4101.s0001", [event], "n", codec="json", key=KEY)
    with pytest.raises(Moved):
        await ledger.stream.publish(message, last=99)


async def test_a_stream_of_another_table_is_refused(opens: Open, nats_url: str, clock: VirtualClock) -> None:
    await write(await opens(), draft())
    stranger = MemoryMaterialized(clock)
    await write(stranger, draft())
    async with connect(nats_url) as connection:
        with pytest.raises(IntegrityMismatch, match="is not the table of it"):
            await NatsLedger(WalStream(connection), stranger, clock).open()


async def test_a_log_goes_on_behind_what_its_table_had(nats_url: str, clock: VirtualClock) -> None:
    table = MemoryMaterialized(clock, mac_key=KEY)
    await write(table, *keyed("a"), draft())
    async with connect(nats_url) as connection:
        ledger = await NatsLedger(WalStream(connection), table, clock, mac_key=KEY).open()
        await ledger.append([batch(draft(), expected_version=2)])
        assert len(await write(ledger, *keyed("a"))) == 1
        assert await prove(ledger) == 3
        await Materializer(ledger, table, clock).drain()
        assert await prove(table) == 3
        await ledger.close()


class TestRetention:
    async def test_what_is_copied_and_old_is_dropped_and_still_read(
        self, opens: Open, table: MemoryMaterialized, clock: VirtualClock
    ) -> None:
        ledger = await opens(recent=0, tidy_seconds=0.01)
        later = SystemClock()
        assert await WalRetention(ledger.stream, later, keep=0, least=0).drop(0) == 0
        for _ in range(6):
            await write(ledger, draft(), frame(), stream=STREAM)
        assert await WalRetention(ledger.stream, later, keep=3600, least=0).drop(6) == 0
        materializer = Materializer(ledger, table, clock)
        assert await materializer.drain() == 12
        assert await WalRetention(ledger.stream, later, keep=0, least=0).drop(4) == 4
        assert (await ledger.stream.tip()).first == 5
        again = await opens()
        assert await prove(again) == await prove(ledger) == 12
        await again.append([batch(draft(), expected_version=12)])
        assert await prove(ledger) == 13

    async def test_a_stream_that_was_dropped_is_written_on(self, opens: Open, table: MemoryMaterialized) -> None:
        ledger, other = await opens(), await opens()
        await write(ledger, *keyed("a"))
        await Materializer(ledger, table, SystemClock()).drain()
        await WalRetention(ledger.stream, SystemClock(), keep=0, least=0).drop(1)
        await other.append([batch(draft(), expected_version=1)])
        await ledger.append([batch(draft(), expected_version=2)])
        assert len(await write(await opens(), *keyed("a"))) == 1
        assert await prove(other) == 3

    async def test_who_was_away_too_long_goes_on_from_the_table(
        self, opens: Open, table: MemoryMaterialized, clock: VirtualClock
    ) -> None:
        ledger, asleep = await opens(), await opens()
        await write(asleep, *keyed("x"))
        async with asleep._log._judging:  # it reads nothing meanwhile
            for n in range(5):
                await write(ledger, *keyed(f"k{n}"))
            await Materializer(ledger, table, clock).drain()
            await WalRetention(ledger.stream, SystemClock(), keep=0, least=0).drop(5)
        assert await prove(asleep) == 6
        assert [event.idempotency_key for event in await write(asleep, *keyed("k3", "k4"))] == ["k3", "k4"]
        await asleep.append([batch(draft(), expected_version=6)])
        assert await prove(ledger) == 7

    async def test_a_message_that_is_missing_is_corruption(self, opens: Open, nats_url: str) -> None:
        async with connect(nats_url) as connection:
            stream = WalStream(connection).name
            await connection.streams.add_stream(name=stream, subjects=["noetl.wal.>"])  # as if nothing forbade it
            ledger = await opens()
            for _ in range(3):
                await write(ledger, draft())
            await connection.streams.delete_msg(stream, 2)
        with pytest.raises(Corruption, match=r"message 2 .* is missing"):
            await opens()
        assert any("lacks 1 messages" in text for text in await ledger.check_storage())


async def test_a_full_disk_is_said_and_nothing_is_half_done(
    own_nats: Callable[..., NatsServer], table: MemoryMaterialized, clock: VirtualClock
) -> None:
    server = own_nats(limit="256KB")
    async with connect(server.url) as connection:
        ledger = await NatsLedger(WalStream(connection), table, clock, mac_key=KEY).open()
        large = draft(payload={"text": "x" * 50_000})
        outcomes = [(await settled(write(ledger, large)))[0] for _ in range(10)]
        written = [one for one in outcomes if not isinstance(one, Exception)]
        assert 0 < len(written) < 10
        assert all(isinstance(one, StorageFull) for one in outcomes[len(written) :])
        assert await prove(ledger) == len(written)
        await ledger.close()


async def test_while_nats_is_away_appends_fail_in_time_and_say_what_is_not_known(
    own_nats: Callable[..., NatsServer], table: MemoryMaterialized, clock: VirtualClock
) -> None:
    server = own_nats(sync="always")
    async with connect(server.url, patience=0.5) as connection:
        ledger = await NatsLedger(WalStream(connection), table, clock, mac_key=KEY, patience=0.5).open()
        await write(ledger, *keyed("a"))
        server.kill()
        with pytest.raises(Unavailable, match="not known whether"):
            await write(ledger, *keyed("b"))
        server.start()
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(Unavailable):
                    await write(ledger, *keyed("b"))
                    break
        assert await prove(ledger) == 2
        await ledger.close()
