"""Who is there, as the servers that route commands know it."""

from __future__ import annotations

from noetl import __version__
from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.kv import MemoryKv
from noetl.runtime.remote import wire
from noetl.runtime.remote.roster import Roster
from noetl.runtime.remote.routing import Routes


async def test_a_worker_with_spark_that_has_just_come_is_not_overlooked() -> None:
    """Nobody was there a moment ago: that is no reason to keep a stage at the server now."""
    clock = VirtualClock(0)
    roster = Roster(MemoryKv(clock), clock)
    routes = Routes(roster)
    assert not await routes.has_spark()
    await roster.note(
        wire.Hello(worker_id="w", version=__version__, protocol=wire.PROTOCOL, pools=("spark",), concurrency=1)
    )
    assert await routes.has_spark()
