"""What every CommandQueue must do.

A subclass brings the fixture `queue`, empty, with leases of a second and three attempts, and `dead`, which
gives the reasons of the dead letters there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from noetl.ports.queue import CommandQueue, Depth, LeasedCommand, QueuedCommand
from tests.contracts.fabric import comes_to

LEASE, ATTEMPTS = 1.0, 3
PATIENCE = 45.0  # of a machine that is busy with something else
Dead = Callable[[], Awaitable[Sequence[str]]]


def command(number: int, pool: str = "shared", *, event: int | None = None, tenant: str = "acme") -> QueuedCommand:
    return QueuedCommand(
        pool=pool,
        tenant_id=tenant,
        organization_id="retail",
        execution_id=4101,
        command_id=number,
        event_id=event or number,
        step="load",
        kind="python",
    )


def ids(leased: Sequence[LeasedCommand]) -> list[int]:
    return [one.command.command_id for one in leased]


class CommandQueueContract:
    async def test_a_command_that_is_put_in_anew_is_delivered_anew(self, queue: CommandQueue) -> None:
        first = command(1)
        await queue.enqueue([first])
        (leased,) = await queue.lease(first.pool, wait=PATIENCE)
        again = msgspec.structs.replace(first, round=1)
        await queue.enqueue([again, again])
        await queue.ack(leased)
        assert [(one.command, one.attempts) for one in await queue.lease(first.pool, limit=5, wait=PATIENCE)] == [
            (again, 1)
        ]

    async def test_commands_come_out_as_they_went_in_oldest_first(self, queue: CommandQueue) -> None:
        commands = [command(n) for n in range(1, 6)]
        await queue.enqueue(commands)
        leased = await queue.lease("shared", limit=10, wait=PATIENCE)
        assert [one.command for one in leased] == commands
        assert [one.attempts for one in leased] == [1] * 5

    async def test_a_command_keeps_its_place_in_a_trace(self, queue: CommandQueue) -> None:
        place = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
        await queue.enqueue([msgspec.structs.replace(command(1), **place)])
        (leased,) = await queue.lease("shared", wait=PATIENCE)
        assert leased.command.carrier == place

    async def test_no_more_than_the_limit_is_leased(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(n) for n in range(1, 4)])
        assert ids(await queue.lease("shared", wait=PATIENCE)) == [1]
        assert ids(await queue.lease("shared", limit=2, wait=PATIENCE)) == [2, 3]

    async def test_a_pool_gets_its_own_commands_only(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1, "shared"), command(2, "spark"), command(3, "a pool.with*odd>name")])
        assert ids(await queue.lease("spark", limit=10, wait=PATIENCE)) == [2]
        assert ids(await queue.lease("a pool.with*odd>name", limit=10, wait=PATIENCE)) == [3]
        assert await queue.lease("nobody") == []
        assert ids(await queue.lease("shared", limit=10, wait=PATIENCE)) == [1]

    async def test_a_command_told_twice_is_delivered_once(self, queue: CommandQueue) -> None:
        for _ in range(3):
            await queue.enqueue([command(1), command(2)])
        assert ids(await queue.lease("shared", limit=10, wait=PATIENCE)) == [1, 2]
        assert await queue.lease("shared") == []

    async def test_what_was_lost_can_be_put_in_again(self, queue: CommandQueue) -> None:
        other = msgspec.structs.replace(command(2), execution_id=4102)
        assert not await queue.has(command(1))
        await queue.enqueue([command(1)])
        assert await queue.has(command(1))
        assert not await queue.has(other)
        (first,) = await queue.lease("shared", wait=PATIENCE)
        assert await queue.has(command(1))
        await queue.ack(first)
        assert not await queue.has(command(1))
        await queue.enqueue([command(1)])
        assert not await queue.has(command(1))
        await queue.enqueue([command(1)], again=True)
        assert ids(await queue.lease("shared", limit=10, wait=PATIENCE)) == [1]

    async def test_a_command_that_is_resumed_comes_again(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1)])
        (first,) = await queue.lease("shared", wait=PATIENCE)
        await queue.ack(first)
        await queue.enqueue([command(1, event=7)])
        assert ids(await queue.lease("shared", wait=PATIENCE)) == [1]

    async def test_the_same_ids_of_two_tenants_are_two_commands(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1), command(1, tenant="umbrella")])
        leased = await queue.lease("shared", limit=10, wait=PATIENCE)
        assert [one.command.tenant_id for one in leased] == ["acme", "umbrella"]

    async def test_an_empty_pool_answers_at_once_or_waits(self, queue: CommandQueue) -> None:
        assert await queue.lease("shared") == []
        waiting = asyncio.create_task(queue.lease("shared", wait=PATIENCE))
        await asyncio.sleep(0)
        await queue.enqueue([command(1)])
        assert ids(await waiting) == [1]

    async def test_what_is_acknowledged_never_comes_again(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1)])
        (leased,) = await queue.lease("shared", wait=PATIENCE)
        await queue.ack(leased)
        await queue.ack(leased)
        assert await queue.lease("shared", wait=2 * LEASE) == []
        await comes_to(lambda: queue.depth("shared"), Depth(waiting=0, leased=0))

    async def test_the_command_of_a_dead_worker_goes_to_another(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1)])
        (first,) = await queue.lease("shared", wait=PATIENCE)
        assert await queue.lease("shared") == []
        (second,) = await queue.lease("shared", wait=PATIENCE)
        assert (second.command, second.attempts) == (first.command, 2)

    async def test_an_acknowledgement_that_comes_late_counts(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1)])
        (first,) = await queue.lease("shared", wait=PATIENCE)
        assert await queue.lease("shared", wait=PATIENCE)
        await queue.ack(first)
        assert await queue.lease("shared", wait=2 * LEASE) == []

    async def test_extending_keeps_others_away(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1)])
        (leased,) = await queue.lease("shared", wait=PATIENCE)
        for _ in range(6):
            assert await queue.lease("shared", wait=LEASE / 4) == []
            await queue.extend(leased)
        (again,) = await queue.lease("shared", wait=PATIENCE)
        assert again.attempts == 2

    async def test_what_is_given_back_comes_again_after_its_delay(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(1)])
        (leased,) = await queue.lease("shared", wait=PATIENCE)
        await queue.nack(leased, delay=1.0)
        assert await queue.lease("shared") == []
        (again,) = await queue.lease("shared", wait=PATIENCE)
        assert again.attempts == 2
        await queue.nack(again)
        assert ids(await queue.lease("shared", wait=LEASE / 2)) == [1]

    async def test_a_poisoned_command_ends_with_the_dead_letters(self, queue: CommandQueue, dead: Dead) -> None:
        await queue.enqueue([command(1), command(2)])
        for attempt in range(1, ATTEMPTS + 1):
            poisoned = await queue.lease("shared", limit=10, wait=PATIENCE)
            assert {one.attempts for one in poisoned if one.command.command_id == 1} == {attempt}
            for one in poisoned:
                if one.command.command_id == 1:
                    await queue.nack(one)
                else:
                    await queue.ack(one)
        assert await queue.lease("shared", limit=10, wait=2 * LEASE) == []
        (reason,) = await dead()
        assert "3 times" in reason
        await comes_to(lambda: queue.depth("shared"), Depth(waiting=0, leased=0))

    async def test_of_many_workers_each_command_goes_to_one(self, queue: CommandQueue) -> None:
        await queue.enqueue([command(n) for n in range(1, 31)])

        async def work() -> list[int]:
            done = []
            while leased := await queue.lease("shared", limit=4):
                for one in leased:
                    await queue.ack(one)
                done += ids(leased)
            return done

        shares = await asyncio.gather(*(work() for _ in range(5)))
        assert sorted(number for share in shares for number in share) == list(range(1, 31))

    async def test_depth_tells_what_waits_from_what_is_leased(self, queue: CommandQueue) -> None:
        await comes_to(lambda: queue.depth("shared"), Depth(waiting=0, leased=0))
        await queue.enqueue([command(n) for n in range(1, 6)])
        await comes_to(lambda: queue.depth("shared"), Depth(waiting=5, leased=0))
        await queue.lease("shared", limit=2, wait=PATIENCE)
        await comes_to(lambda: queue.depth("shared"), Depth(waiting=3, leased=2))
        await comes_to(lambda: queue.depth("spark"), Depth(waiting=0, leased=0))
