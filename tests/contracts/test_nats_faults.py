"""What the NATS adapters do when NATS is away, full, wiped, or holds what nobody wrote."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.nats.connection import Connection, connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.nats.kv import NatsKv
from noetl.adapters.nats.queue import NatsCommandQueue
from noetl.adapters.nats.streams import Topology
from noetl.archive.wire import CODECS, Codec
from noetl.errors import AccessRefused, InvalidInput, Unavailable
from noetl.kernel.event import Recorded
from noetl.kernel.names import SHARD_COUNT
from noetl.ports.fabric import Lag, shard_of_event
from noetl.runtime.clock import SystemClock
from noetl.runtime.refill import Refilled, may_have_lost, refill
from tests.contracts.fabric import PATIENCE, comes_to, everything, held, positions, written
from tests.contracts.queue import command, ids
from tests.services.emulator import free_ports
from tests.services.nats import NatsServer, nats_server, nats_url, own_nats
from tests.services.proxy import proxied
from tests.unit.kernel.drafts import batch, draft

__all__ = ["nats_server", "nats_url", "own_nats"]

# A client of NATS whose connection is cut while it greets the server drops the stream without closing it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")

Servers = Callable[..., NatsServer]


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[Connection]:
    async with connect(nats_url) as connection:
        yield connection


async def published(fabric: NatsFabric, items: list[Recorded], before: Callable[[], None] = lambda: None) -> None:
    """Publish what was refused again, as a publisher does, until nothing is."""
    async with asyncio.timeout(60):
        while items:
            before()
            with contextlib.suppress(Unavailable):
                refused = (await fabric.publish(items)).refused
                items = [item for item in items if item.position in refused]


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unavailable) as caught:
        async with connect(f"nats://me:planted-secret@127.0.0.1:{port}", patience=1):
            pass
    assert f"127.0.0.1:{port}" in caught.value.message
    assert "planted-secret" not in str(caught.value)
    assert caught.value.hint


async def test_a_wrong_password_is_told_at_once(nats_server: int) -> None:
    with pytest.raises(AccessRefused, match="does not let us in") as caught:
        async with connect(f"nats://t0:planted-secret@127.0.0.1:{nats_server}", patience=PATIENCE):
            pass
    assert "planted-secret" not in str(caught.value)
    assert "nats.url" in (caught.value.hint or "")


async def test_credentials_that_are_not_there_are_named(nats_server: int) -> None:
    with pytest.raises(InvalidInput, match=r"no file .*nobody.creds"):
        async with connect(f"nats://127.0.0.1:{nats_server}", credentials="/nowhere/nobody.creds"):
            pass


async def test_calls_fail_in_time_while_the_server_is_away_and_work_when_it_is_back(own_nats: Servers) -> None:
    server = own_nats()
    async with connect(server.url, patience=1) as connection:
        fabric, queue, kv = NatsFabric(connection), NatsCommandQueue(connection), NatsKv(connection)
        items = written(6)
        await fabric.publish(items[:4])
        await queue.enqueue([command(1), command(2)])
        await kv.put("a", b"1")
        consumer = await fabric.consumer("projector", settle_within=2)
        assert positions(await consumer.fetch(2, wait=PATIENCE)) == [1, 2]
        before = await fabric.tails()
        server.kill()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: fabric.publish(items[4:]),
            lambda: consumer.fetch(wait=1),
            lambda: queue.lease("shared"),
            lambda: kv.get("a"),
        ]
        for call in calls:
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
                await asyncio.wait_for(call(), PATIENCE)
        server.start()
        connection.timeout = PATIENCE
        await published(fabric, items[4:])
        assert sorted(positions(await everything(consumer, 6))) == [1, 2, 3, 4, 5, 6]
        assert ids(await queue.lease("shared", limit=5, wait=PATIENCE)) == [1, 2]
        entry = await kv.get("a")
        assert entry is not None
        assert entry.value == b"1"
        assert may_have_lost(before, await fabric.tails())


async def test_a_connection_that_is_cut_in_the_middle_loses_nothing(nats_url: str) -> None:
    port = int(nats_url.rpartition(":")[2])
    items = written(300)
    async with proxied(port) as proxy, connect(nats_url.replace(str(port), str(proxy.port)), patience=2) as connection:
        fabric = NatsFabric(connection, window=32)
        await fabric.publish(items[:1])
        proxy.cut_requests_after = 40_000

        def mend() -> None:
            if proxy.cuts >= 2:
                proxy.cut_requests_after = None

        await published(fabric, items, mend)
        assert proxy.cuts
        assert await held(fabric) == list(range(1, 301))


async def test_who_stops_waiting_for_a_settlement_leaves_the_connection_as_it_was(connection: Connection) -> None:
    """An answer that nobody waited for any more made the client deaf until its pings went unanswered, half a minute."""
    queue = NatsCommandQueue(connection)
    await queue.enqueue([command(1)])
    (leased,) = await queue.lease("shared", wait=PATIENCE)
    for moment in range(6):
        beat = asyncio.create_task(queue.extend(leased))
        for _ in range(moment):
            await asyncio.sleep(0)
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)
    async with asyncio.timeout(PATIENCE):
        await queue.ack(leased)
        assert (await queue.depth("shared")).leased == 0


async def test_a_wiped_server_is_filled_again_from_the_ledger(own_nats: Servers) -> None:
    server, ledger = own_nats(), MemoryLedger(SystemClock())
    await ledger.append([batch(*[draft(payload={"n": n}) for n in range(50)])])
    async with connect(server.url, patience=PATIENCE) as connection:
        fabric = NatsFabric(connection)
        await fabric.publish(await ledger.read_all())
        consumer = await fabric.consumer("projector")
        before = await fabric.tails()
        server.kill()
        server.wipe()
        server.start()
        assert may_have_lost(before, await fabric.tails())
        assert await refill(ledger, fabric, after=0) == Refilled(looked_at=50, missing=50)
        assert positions(await everything(consumer, 50)) == list(range(1, 51))
        assert await refill(ledger, fabric, after=0) == Refilled(looked_at=50, missing=0)


async def test_holes_and_purges_are_filled_again_from_the_ledger(connection: Connection) -> None:
    ledger, fabric = MemoryLedger(SystemClock()), NatsFabric(connection)
    await ledger.append([batch(*[draft(payload={"n": n}) for n in range(40)])])
    await fabric.publish(await ledger.read_all())
    (stream,) = fabric.streams.topology.events
    for number in (3, 7, 39, 40):
        await connection.streams.delete_msg(stream, number)
    assert await refill(ledger, fabric, after=0) == Refilled(looked_at=40, missing=4)
    before = await fabric.tails()
    await connection.streams.purge_stream(stream)
    assert may_have_lost(before, await fabric.tails())
    assert await refill(ledger, fabric, after=30) == Refilled(looked_at=10, missing=10)
    assert await held(fabric) == list(range(31, 41))


async def test_a_number_that_is_given_twice_shows_that_the_end_was_lost(connection: Connection) -> None:
    fabric = NatsFabric(connection)
    items = written(6)
    await fabric.publish(items[:4])
    before = await fabric.tails()
    (stream,) = fabric.streams.topology.events
    await connection.streams.delete_stream(stream)  # a server that comes back without its end counts from there
    await fabric.streams.ensure(stream, again=True)
    await fabric.publish(items)
    (tail,) = await fabric.tails()
    assert tail.last > before[0].last
    assert tail.life.rpartition("/")[2] == "1"


async def test_a_full_disk_is_told_and_nothing_is_said_to_be_taken(own_nats: Servers) -> None:
    server = own_nats(limit="64KB")
    async with connect(server.url, patience=2) as connection:
        fabric = NatsFabric(connection)
        items = written(400)
        await fabric.streams.ensure_events()
        published = await fabric.publish(items)
        assert published.refused
        assert len(published.taken) + len(published.refused) == 400
        assert len(await held(fabric)) >= len(published.taken)


async def test_a_server_without_jetstream_is_told(own_nats: Servers) -> None:
    async with connect(own_nats(jetstream=False).url, patience=2) as connection:
        with pytest.raises(Unavailable, match="JetStream") as caught:
            await NatsFabric(connection).tails()
    assert "JetStream" in (caught.value.hint or "")


async def test_messages_that_are_no_events_end_with_the_dead_letters(connection: Connection) -> None:
    fabric = NatsFabric(connection)
    await fabric.publish(written(1))
    subject = "noetl.events.acme.retail.4101.s0000"
    bad: list[tuple[bytes, dict[str, str]]] = [
        (b"not an event", {"Noetl-Position": "7", "Noetl-Codec": "json", "Noetl-Checksum": "x"}),
        (b"{}", {}),
        (b"<event/>", {"Noetl-Position": "8", "Noetl-Codec": "xml"}),
    ]
    for data, headers in bad:
        await connection.streams.publish(subject, data, headers=headers)
    consumer = await fabric.consumer("projector")
    assert positions(await everything(consumer, 1)) == [1]
    assert await consumer.fetch(wait=0.2) == []
    letters = await fabric.dead_letters()
    assert [letter.data for letter in letters] == [data for data, _ in bad]
    assert ["not an event" in letters[0].reason, "Noetl-Position" in letters[1].reason, "'xml'" in letters[2].reason]
    await comes_to(consumer.lag, Lag(waiting=0, unsettled=0))
    queue = NatsCommandQueue(connection)
    assert await queue.lease("shared") == []
    await connection.streams.publish("noetl.commands.shared.4101", b"rubbish")
    assert await queue.lease("shared", wait=0.2) == []
    assert "not a command" in (await queue.dead_letters())[-1].reason


@pytest.mark.parametrize("codec", CODECS)
async def test_consumers_read_either_codec(codec: Codec, connection: Connection) -> None:
    items = written(3)
    await NatsFabric(connection, codec=codec).publish(items)
    consumer = await NatsFabric(connection).consumer("projector")
    assert [one.item for one in await everything(consumer, 3)] == items


async def test_several_streams_hold_the_shards_between_them(connection: Connection) -> None:
    fabric = NatsFabric(connection, Topology(region="eu-1", streams=4))
    items = written(80, executions=40)
    await fabric.publish(items)
    assert [tail.name for tail in await fabric.tails()] == [f"NOETL_EVT_eu-1_s{n:04d}" for n in (0, 64, 128, 192)]
    assert all(tail.messages for tail in await fabric.tails())
    everyone = await fabric.consumer("lake")
    assert sorted(positions(await everything(everyone, 80))) == list(range(1, 81))
    half = await fabric.consumer("half", shards=range(1, SHARD_COUNT, 2))
    expected = [item.position for item in items if shard_of_event(item.event) % 2]
    assert sorted(positions(await everything(half, len(expected)))) == expected
    assert await half.fetch(wait=0.2) == []
    waiting = asyncio.create_task(everyone.fetch(wait=PATIENCE))
    await fabric.publish([Recorded(item.position + 80, item.event) for item in written(1, tenant="umbrella")])
    assert positions(await waiting) == [81]


async def test_streams_of_another_cut_are_refused_with_the_way_out(connection: Connection) -> None:
    await NatsFabric(connection).streams.ensure_events()
    for topology in (Topology(streams=4), Topology(region="elsewhere")):
        with pytest.raises(InvalidInput, match="NOETL_EVT_") as caught:
            await NatsFabric(connection, topology).streams.ensure_events()
        assert "nats.streams" in (caught.value.hint or "")


async def test_limits_that_an_operator_has_set_are_left_alone(connection: Connection) -> None:
    fabric = NatsFabric(connection)
    await fabric.streams.ensure_events()
    (stream,) = fabric.streams.topology.events
    config = (await connection.streams.stream_info(stream)).config
    await connection.streams.update_stream(config.evolve(max_msgs=1234))
    await NatsFabric(connection).streams.ensure_events()
    assert (await connection.streams.stream_info(stream)).config.max_msgs == 1234


async def test_a_deleted_bucket_and_a_deleted_queue_are_made_anew(connection: Connection) -> None:
    kv, queue = NatsKv(connection), NatsCommandQueue(connection)
    await kv.put("a", b"1")
    await queue.enqueue([command(1)])
    await queue.lease("shared", wait=PATIENCE)
    for info in await connection.streams.streams_info():
        await connection.streams.delete_stream(str(info.config.name))
    await kv.put("a", b"2")
    entry = await kv.get("a")
    assert entry is not None
    assert entry.value == b"2"
    assert await queue.lease("shared") == []
    await queue.enqueue([command(1)])
    assert ids(await queue.lease("shared", wait=PATIENCE)) == [1]
