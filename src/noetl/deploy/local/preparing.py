"""What a stack needs before its own processes can start: tables, and the tokens that they and their user show."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from noetl.deploy.local.record import Stack
from noetl.kernel.time import format_time
from noetl.runtime.callers import local_caller
from noetl.runtime.custody import Custody, custody_of
from noetl.runtime.home import Home
from noetl.runtime.schema import migrate_database
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import DatabaseUrl, Settings

__all__ = ["prepare", "with_database"]

_OPERATOR, _WORKERS = "stack-operator", "stack-workers"


def with_database(settings: Settings, stack: Stack) -> Settings:
    """The settings of a process that writes to the stack's own ledger."""
    ledger = msgspec.structs.replace(settings.ledger, url=DatabaseUrl(stack.postgres))
    return msgspec.structs.replace(settings, ledger=ledger)


def prepare(stack: Stack, settings: Settings) -> Stack:
    """Bring the tables up to this release, and see to it that both tokens hold; the stack with its tokens."""
    return asyncio.run(_prepare(stack, with_database(settings, stack)))


async def _prepare(stack: Stack, settings: Settings) -> Stack:
    await migrate_database(settings, None)
    async with open_embedded(Home(Path(stack.home), elsewhere=True), settings, create=True) as embedded:
        custody = custody_of(embedded, settings)
        token = await _token(embedded, custody, settings, stack.token, _OPERATOR, ["admin"])
        worker_token = await _token(embedded, custody, settings, stack.worker_token, _WORKERS, ["worker"])
    return msgspec.structs.replace(stack, token=token, worker_token=worker_token)


async def _token(
    embedded: Embedded, custody: Custody, settings: Settings, known: str | None, name: str, roles: Sequence[str]
) -> str:
    """The token that is known, if it holds, or else a new one in its place."""
    if known is not None:
        stored, now = await embedded.tokens.find(known.split("_")[1]), format_time(embedded.clock.now())
        if stored is not None and stored.info.revoked_at is None and (stored.info.expires_at or "~") > now:
            return known
    caller = local_caller(settings)
    page = await embedded.tokens.list(caller.tenant_id, limit=1000)
    if any(one.name == name and one.revoked_at is None for one in page.tokens):
        await custody.revoke_token(caller, name)  # whoever has it cannot be us
    return (await custody.create_token(caller, name, roles, seconds=None)).token
