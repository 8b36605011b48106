"""Wiring of a worker: from settings to its queue, its tools and its way to the server. No database is opened."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl import __version__
from noetl.engine.pipeline import RunTask
from noetl.errors import Conflict, NoetlError, Unavailable
from noetl.kernel.event import Json
from noetl.observe.otel import recorded
from noetl.runtime.calls import Found, prepare_call
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home
from noetl.runtime.logs import kept_logs
from noetl.runtime.messaging import open_messaging
from noetl.runtime.notices import all_of
from noetl.runtime.process import process_name
from noetl.runtime.remote import wire
from noetl.runtime.remote.bench import Bench, PlainBench
from noetl.runtime.remote.client import RemoteControlPlane
from noetl.runtime.remote.prints import Prints
from noetl.runtime.remote.queue_worker import QueueWorker
from noetl.runtime.remote.roster import ROSTER_SECONDS
from noetl.runtime.remote.secrets import Vaults, in_hand
from noetl.runtime.remote.store import store_name
from noetl.runtime.remote.topology import Locality, locality_of
from noetl.runtime.requests import SPARK_POOL
from noetl.runtime.resolver import resolver_of
from noetl.runtime.stores import open_objects
from noetl.runtime.tooling import env_of, registry_with, token_client
from noetl.runtime.worker import CallPlaybook, Work, Worker
from noetl.settings import Settings
from noetl.tools.base import Outcome, Tool
from noetl.tools.registry import Registry

if TYPE_CHECKING:
    from noetl.payloads.effects import EffectStore

__all__ = ["Post", "open_worker"]

_FIRST_PATIENCE = 5.0

_log = logging.getLogger("noetl.worker")


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do, and for whom."""

    urls: Sequence[str]
    token: str | None
    pools: Sequence[str]
    concurrency: int
    labels: Mapping[str, str] = {}


@contextlib.asynccontextmanager
async def open_worker(home: Home, settings: Settings, post: Post) -> AsyncIterator[QueueWorker]:
    """A worker that its server has let in.

    Raises Unauthenticated or Forbidden for a wrong token, Unavailable where nobody answers or the server is of another
    release or has no work for workers.
    """
    clock = SystemClock()
    worker_id = f"{process_name('worker')}/{secrets.token_hex(4)}"
    async with contextlib.AsyncExitStack() as opened:
        opened.enter_context(recorded(settings.observe.otlp, "noetl-worker"))
        locality = locality_of(settings.place)
        hello = _hello(post, worker_id, locality)
        control = RemoteControlPlane(post.urls, post.token, locality=locality, labels=post.labels)
        opened.push_async_callback(control.close)
        welcome = await _welcome(control, hello)
        opened.push_async_callback(_deregister, control, worker_id)
        if SPARK_POOL in post.pools:
            from noetl.runtime.remote.spark_bench import check_means

            check_means(is_same_store=store_name(settings, home.path) == welcome.store)
        messaging = await opened.enter_async_context(open_messaging(settings, name=worker_id))
        home.create()
        scratch = home.path / "scratch"
        kept = _Kept(control)
        vaults = Vaults(control, clock, lambda: token_client(settings))
        opened.push_async_callback(vaults.close)
        prints = Prints(clock)
        keep = all_of(await opened.enter_async_context(kept_logs(home.path, clock, _log.warning)), prints.hear)

        def make_registry(makers: Mapping[str, Callable[[], Tool]]) -> Registry:
            return registry_with(settings, scratch, resolver_of(settings, lambda: kept), makers=makers)

        def make_worker(registry: Registry, effects: EffectStore | None, call: CallPlaybook | None = None) -> Worker:
            return Worker(
                registry, clock, _Calls(control).prepare, Path.cwd(), scratch, vaults, env_of(settings, os.environ),
                keep, effects, call,
            )  # fmt: skip

        bench: Bench
        if SPARK_POOL in post.pools:
            from noetl.runtime.remote.spark_bench import Means, open_bench

            means = Means(home, settings, clock, control, worker_id, make_registry, make_worker)
            bench = await opened.enter_async_context(open_bench(means))
        else:
            registry = make_registry({})
            opened.push_async_callback(registry.close)
            bench = PlainBench(make_worker(registry, await _effects(home, settings, welcome)), clock)
        await opened.enter_async_context(_on_the_roster(control, hello))
        yield QueueWorker(
            messaging.queue,
            control,
            bench,
            clock,
            worker_id,
            pools=post.pools,
            concurrency=post.concurrency,
            lease_seconds=welcome.lease_seconds,
            prints=prints,
        )


def _hello(post: Post, worker_id: str, locality: Locality) -> wire.Hello:
    return wire.Hello(
        worker_id=worker_id,
        version=__version__,
        protocol=wire.PROTOCOL,
        pools=tuple(post.pools),
        concurrency=post.concurrency,
        labels=dict(post.labels),
        locality=locality,
    )


async def _welcome(control: RemoteControlPlane, hello: wire.Hello) -> wire.Welcome:
    try:
        return await control.register(hello, patience=_FIRST_PATIENCE)
    except Conflict as error:
        raise Unavailable(f"{control.urls}: {error.message}", hint=error.hint) from None


@contextlib.asynccontextmanager
async def _on_the_roster(control: RemoteControlPlane, hello: wire.Hello) -> AsyncIterator[None]:
    """Say every now and then that this worker is there."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(ROSTER_SECONDS)
            with contextlib.suppress(NoetlError):  # it is for people to see; the next question about a command tells
                await control.register(hello, patience=0.0)

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)


async def _deregister(control: RemoteControlPlane, worker_id: str) -> None:
    with contextlib.suppress(NoetlError):  # it will be missed
        await control.deregister(worker_id)


async def _effects(home: Home, settings: Settings, welcome: wire.Welcome) -> EffectStore | None:
    """Where outcomes are kept before they are reported: in the server's own store, where this process has it, too.

    Elsewhere nobody would find them; then it is the report's commit that makes them durable.
    """
    if store_name(settings, home.path) != welcome.store:
        return None
    from noetl.payloads.effects import EffectStore

    return EffectStore(await open_objects(home, settings))


class _Calls:
    """Calls of playbooks: looked up by the server, which starts them, too."""

    def __init__(self, control: RemoteControlPlane) -> None:
        self._control = control

    async def prepare(self, work: Work, asked: RunTask) -> Json | Outcome:
        """What is to be called, or the outcome of a call that cannot be made."""

        async def find(path: str, version: Any) -> Found:
            return await self._control.playbook(in_hand(), path, version)

        return await prepare_call(work, asked, find)


class _Kept:
    """What is behind `noetl://` addresses, for the command that is being worked on."""

    def __init__(self, control: RemoteControlPlane) -> None:
        self._control = control

    async def read(self, uri: str) -> Any:
        return await self._control.read(in_hand(), uri)

    async def store(self, uri: str, data: bytes) -> str:
        return await self._control.store(in_hand(), uri, data)
