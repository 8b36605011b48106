"""What must hold when a run is over and everybody has come to rest."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from noetl.kernel.event import Envelope
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.kernel.vocabulary import TERMINAL_TYPES
from noetl.payloads.caches import Caches
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.replay import Replayer, Verifier
from noetl.runtime.calls import finished
from noetl.runtime.execution import Execution
from noetl.runtime.iterations import Iterations
from noetl.runtime.keeping import Keeper
from noetl.runtime.loading import Documents, Loader
from noetl.runtime.projector import PROJECTOR
from noetl.settings import Bytes, Payloads
from tests.simulation.runtime.process import ORIGIN, Process
from tests.simulation.runtime.schedule import Place
from tests.simulation.runtime.world import TENANT, Member, World, stable
from tests.simulation.world import require

__all__ = ["Reached", "check_end", "check_live", "names_of", "reached"]

_MOMENT = 1.0
_COMMAND_ENDS = frozenset({"command.completed", "command.failed", "command.cancelled"})
_RUNS = {"step.enter": "e", "step.exit": "x", "loop.opened": "o"}


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has come to, told so that it can be compared with another run of the same document."""

    status: str
    result: Any
    effects: dict[str, int]
    members: tuple[tuple[str, str], ...]
    operations: dict[Place, int] = {}
    """How many operations of each kind that took, for whoever chooses moments."""


def names_of(world: World) -> dict[str, str]:
    """Ids of executions to their places in the tree: which call of which command of whom."""
    names: dict[str, str] = {}
    for member in world.members.values():
        if member.parent is None:
            names[str(member.execution_id)] = "root"
    for item in world.log:  # callers come before those they call
        event = item.event
        if event.event_type == "command.suspended" and (caller := names.get(str(event.execution_id))):
            issued = _issued(world, event)
            place = f"{event.node_name}~{issued.get('run')}.{issued.get('loop_index', '')}"
            earlier = sum(name.startswith(f"{caller}/{place}#") and "/" not in name[len(caller) + 1 :]
                          for name in names.values())  # fmt: skip
            names[str(event.payload["child_execution_id"])] = f"{caller}/{place}#{earlier}"
    return names


def _issued(world: World, event: Envelope) -> dict[str, Any]:
    return next(
        item.event.payload
        for item in world.log
        if item.event.event_id == event.command_id and item.event.execution_id == event.execution_id
    )


async def reached(world: World) -> Reached:
    """The end of the root, and everything that was done for it."""
    root = world.root
    require(root is not None, "it was never begun")
    assert root is not None
    names = names_of(world)
    ended = await finished(await _loader(world).load(root.execution_id), _keeper(world))
    effects = {_stable_key(key, names): count for key, count in world.calls.items()}
    members = sorted((names.get(str(one.execution_id), "?"), one.status or "") for one in world.members.values())
    return Reached(
        status=ended.status,
        result=stable(ended.result, names),
        effects=effects,
        members=tuple(members),
        operations=dict(world.operations),
    )


def _stable_key(key: str, names: dict[str, str]) -> str:
    return re.sub(r"\d{15,}", lambda found: names.get(found.group(), "?"), key)


async def check_live(world: World, processes: list[Process]) -> None:
    """What a process that has survived has in memory is what the log says."""
    for process in processes:
        for execution_id in list(world.members):
            live = process.runner.driver.in_memory(execution_id)
            loaded = await _loader(world).load(execution_id)
            if live is not None and live.version == loaded.version:
                mine, logged = _remembered(live), _remembered(loaded)
                differs = [name for name in mine if mine[name] != logged[name]]
                told = [f"{mine[name]!r:.200} and {logged[name]!r:.200}" for name in differs[:1]]
                require(not differs, f"memory and log disagree about {differs} of execution {execution_id}: {told}")
        require(not process.runner.pool.at_work, f"the pool still holds {process.runner.pool.at_work[:1]}")
        require(process.runner._calls.idle, "a call is still waited for")


def _remembered(execution: Execution) -> dict[str, Any]:
    control = msgspec.to_builtins(execution.control)
    own = {name: getattr(execution, name) for name in ("commands", "pauses", "items", "iterations", "results")}
    found: dict[str, Any] = _plain({**control, **own})
    return found


def _plain(value: Any) -> Any:
    """Results that wait in a file as the lists they stand for."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, Iterations) else value


async def check_end(world: World, expected: Reached | None, exact: bool) -> None:
    """Everything that holds whatever has happened; and, where it can be said, that nothing came out differently."""
    require(not world.violations, "; ".join(world.violations[:3]))
    await _check_kept(world)
    roots = [member for member in world.members.values() if member.parent is None]
    require(len(roots) == 1, f"one request has started {len(roots)} executions")
    for member in world.members.values():
        events = world.events_of(member.execution_id)
        _check_endings(member, events)
        _check_commands(member, events)
        _check_runs(member, events)
        _check_loops(member, events)
    _check_cascades(world)
    await _check_sealed(world)
    await _check_verified(world)
    await _check_leases(world)
    if expected is not None:
        _check_effects(world, await reached(world), expected, exact)


async def _check_kept(world: World) -> None:
    log = {(item.event.stream_id, item.event.event_id): item.event.envelope_checksum for item in world.log}
    lost = [name for name, checksum in world.acked.items() if log.get(name) != checksum]
    require(not lost, f"{len(lost)} acknowledged events are not in the log, such as {lost[:1]}")


def _check_endings(member: Member, events: list[Envelope]) -> None:
    endings = [event.event_type for event in events if event.event_type in TERMINAL_TYPES]
    require(len(endings) == 1, f"execution {member.execution_id} has the endings {endings}")


def _check_commands(member: Member, events: list[Envelope]) -> None:
    """Each command ends once, is not suspended at the end, and nothing happens to it afterwards."""
    issued = {event.event_id: event for event in events if event.event_type == "command.issued"}
    endings = Counter(event.command_id for event in events if event.event_type in _COMMAND_ENDS)
    for command_id, event in issued.items():
        times = endings.pop(command_id, 0)
        require(times == 1, f"command {command_id} of step '{event.node_name}' has ended {times} times")
    require(not endings, f"commands ended that were never issued: {list(endings)[:2]}")
    calls = Counter(event.command_id for event in events if event.event_type in ("call.done", "call.error"))
    twice = [command for command, count in calls.items() if count > 1]
    require(not twice, f"commands {twice[:2]} were counted twice")


def _check_runs(member: Member, events: list[Envelope]) -> None:
    """Each run of a step is entered once and left once, in that order; a cancelled one may lack both."""
    told: dict[str, str] = {}
    for event in events:
        sign = _RUNS.get(event.event_type, "")
        if event.event_type == "command.issued" and "loop_index" not in event.payload:
            sign = "o"
        if sign:
            told[event.node_name or ""] = told.get(event.node_name or "", "") + sign
    whole = r"(oex)*(oe?)?" if member.status == "CANCELLED" else r"(oex)*"
    for step, signs in told.items():
        require(re.fullmatch(whole, signs) is not None, f"step '{step}' was begun, entered and left like this: {signs}")


def _check_loops(member: Member, events: list[Envelope]) -> None:
    """What loop.done counts is what its iterations have reported."""
    counted: Counter[tuple[str, str]] = Counter()
    command_loops: dict[int, str] = {}
    for event in events:
        if event.event_type == "command.issued" and "loop_id" in event.payload:
            command_loops[event.event_id] = event.payload["loop_id"]
        elif event.event_type in ("call.done", "call.error") and event.command_id in command_loops:
            counted[command_loops[event.command_id], event.event_type] += 1
        elif event.event_type == "loop.done":
            loop, stats = event.aggregate_id or "", event.payload["stats"]
            found = counted[loop, "call.done"], counted[loop, "call.error"]
            require((stats["success"], stats["failed"]) == found, f"loop {loop} counts {stats}, but {found} were told")
            require(stats["total"] == sum(found), f"loop {loop} counts {stats}")
            results = event.payload["result"].get("context", {}).get("results", [])
            if event.payload_ref is None:
                require(len(results) == sum(found), f"loop {loop} has {len(results)} results of {sum(found)}")


def _check_cascades(world: World) -> None:
    """Who was cancelled with all below has nobody below who went on."""
    for execution_id, cascade, length, (asked, done) in world.cancelled:
        slow = done + sum(getattr(fault, "seconds", 0.0) for fault in world.schedule.faults) + _MOMENT
        below = [member for member in world.members.values() if cascade and _is_below(world, member, execution_id)]
        for member in below:
            if asked < world.begun.get(member.execution_id, slow) < slow:
                continue  # it was on its way to being begun, and may have ended before it could be cancelled
            late = any(
                item.event.execution_id == member.execution_id and item.event.event_type in TERMINAL_TYPES
                for item in world.log[length:]
            )
            require(
                not late or member.status == "CANCELLED",
                f"execution {member.execution_id} ended {member.status} after all below {execution_id} was cancelled",
            )


def _is_below(world: World, member: Member, top: int) -> bool:
    above: Member | None = member
    while above is not None and above.parent is not None:
        if above.parent == top:
            return True
        above = world.members.get(above.parent)
    return False


async def _check_sealed(world: World) -> None:
    """The chained log vouches for every event of telemetry."""
    told = Counter(item.event.stream_id for item in world.log if item.event.stream_id.endswith("/telemetry"))
    seals: dict[str, dict[str, Any]] = {}
    for item in world.log:
        if item.event.event_type == "stream.sealed":
            seal = item.event.payload["seal"]
            require(not seals.get(seal["stream_id"], {}).get("final"), f"{seal['stream_id']} was sealed for good twice")
            seals[seal["stream_id"]] = seal
    for stream, count in told.items():
        seal = seals.get(stream, {"count": 0, "final": False})
        require(seal["count"] == count, f"{seal['count']} of {count} events in {stream} are sealed")
        require(seal["final"], f"{stream} is not sealed for good, though its execution has ended")


async def _check_verified(world: World) -> None:
    store = world.store
    registry = default_registry()
    replayer = Replayer(store.ledger, store.projections, registry, world.clock, _payloads(world))
    verifier = Verifier(store.ledger, store.projections, replayer, PROJECTOR)
    position = await store.projections.checkpoint(PROJECTOR)
    require(position == len(world.log), f"the projector stopped at {position} of {len(world.log)}")
    for execution_id in world.members:
        found = await verifier.verify(Stream(TENANT, f"execution/{execution_id}"))
        require(found.chain_ok, f"execution {execution_id}: {found.problems[:1]}")
        require(found.parity, f"execution {execution_id}: live rows differ from the log: {found.differences[:1]}")


async def _check_leases(world: World) -> None:
    world.lease_clock.offset += 1_000_000
    left = await world.leases.expire()
    require(not left, f"leases are left over: {[lease.name for lease in left][:2]}")


def _check_effects(world: World, found: Reached, expected: Reached, exact: bool) -> None:
    for key, count in world.calls.items():
        name = _stable_key(key, names_of(world))
        most = expected.effects.get(name, count if not exact else 0) * (1 + world.hits(key))
        cancelled = any(member.status == "CANCELLED" for member in world.members.values())
        if name in expected.effects or not cancelled:
            require(count <= most or not exact, f"{name} was done {count} times, at most {most} can be explained")
    if not exact or any(member.status == "CANCELLED" for member in world.members.values()):
        return
    lost = world.objects.lost if world.schedule.barrier else []
    require(not lost, f"effects were reported that were never kept: {lost[:2]}")
    missing, surplus = expected.effects.keys() - found.effects.keys(), found.effects.keys() - expected.effects.keys()
    require(not missing and not surplus, f"effects are missing: {sorted(missing)[:2]}, surplus: {sorted(surplus)[:2]}")
    require(found.status == expected.status, f"it ended {found.status}, not {expected.status}")
    require(found.result == expected.result, f"its result is {found.result!r:.200}, not {expected.result!r:.200}")
    require(found.members == expected.members, f"its tree is {found.members}, not {expected.members}")


def _loader(world: World) -> Loader:
    return Loader(world.store.ledger, _keeper(world), Documents(()), TENANT)


def _keeper(world: World) -> Keeper:
    payloads = _payloads(world)
    caches = Caches(Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0)), world.clock)
    results = ResultStore(world.objects, payloads, PayloadTiers(payloads, caches))
    return Keeper(payloads, results, world.clock, ORIGIN.project_id)


def _payloads(world: World) -> PayloadStore:
    return PayloadStore(world.objects, TENANT, ORIGIN.project_id)
