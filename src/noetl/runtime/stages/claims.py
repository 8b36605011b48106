"""Claims of a cursor: the author's statement, and its rows made durable."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.frame.output import claimed_table
from noetl.data.frame.protocol import Opening
from noetl.data.frame.slot import ClaimFailed
from noetl.engine.frames import claim_names
from noetl.engine.outcome import failure
from noetl.errors import NoetlError
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.payloads.blocking import in_thread
from noetl.payloads.formats import MEDIA_TYPES, feather_bytes, feather_pieces
from noetl.payloads.tiers import PayloadTiers
from noetl.playbook import templates
from noetl.runtime.stages.body import StageBody
from noetl.runtime.vault import Session
from noetl.tools.base import Call
from noetl.tools.sql import split

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Claims"]

_TRIES = 4
"""A failing claim is retried three times."""
_DELAY = 0.5
_QUICK_BYTES = 1 << 20
_INLINE_BYTES = 8 << 10
"""Rows of so little are told in the event of their frame: an object of their own would cost more than all else."""


class Claims:
    """Claims rows for the slots of one stage."""

    def __init__(self, body: StageBody, tiers: PayloadTiers) -> None:
        self._body = body
        self._tiers = tiers
        self._cursor: Json = body.plan.source["cursor"]
        self._calls: dict[int, Call] = {}
        self._fresh: dict[str, pa.Table] = {}

    async def claim(self, slot: int) -> Opening | None:
        """Rows, claimed and stored; None if there were none. Raises ClaimFailed."""
        if slot not in self._calls:
            self._calls[slot] = await self._prepared(slot)
        rows = await self._rows(self._calls[slot])
        if not rows:
            return None
        if await self._may_be_told(rows):
            return Opening(slot=slot, inline=tuple(rows), row_count=len(rows), claim_id=secrets.token_hex(8))
        table = claimed_table(rows)
        write = _encoded if table.nbytes < _QUICK_BYTES else _encoded_large
        data = await write(table)
        ref = await self._tiers.store(data, media_type=MEDIA_TYPES["feather"], rows=len(rows))
        self._fresh[ref.sha256] = table
        return Opening(slot=slot, rows=ref, row_count=len(rows), claim_id=secrets.token_hex(8))

    async def _may_be_told(self, rows: list[Json]) -> bool:
        """Whether rows can stand in an event: they are few, and there is no secret of the stage in them."""
        if len(canonical.encode(rows)) > _INLINE_BYTES:
            return False
        session = await self._body.session()
        return session is None or session.redactor.is_empty or session.redactor.value(rows) == rows

    def fresh(self, sha256: str) -> pa.Table | None:
        """Rows that were claimed a moment ago, which need not be read from where they were stored."""
        return self._fresh.pop(sha256, None)

    async def _prepared(self, slot: int) -> Call:
        """The statement of a slot, rendered when the slot first needs it."""
        plan, worker = self._body.plan, self._body.worker
        try:
            self._body.work.authority.check_tool(self._cursor["kind"])
            session = await self._body.session()
            more = claim_names(msgspec.to_builtins(plan.policy), slot)
            statement = self._body.rendered(self._cursor["claim"], session, more)
            auth = await self._auth(session, more)
        except templates.TemplateError as problem:
            raise ClaimFailed(failure(problem.code, f"the claim of slot {slot}: {problem}", kind="schema")) from None
        except NoetlError as problem:
            raise ClaimFailed(failure("CREDENTIAL_UNAVAILABLE", str(problem), kind="auth")) from None
        return Call(
            kind=self._cursor["kind"],
            fields={"command": statement, **_manner(self._cursor["kind"], statement)},
            auth=auth,
            execution_id=str(plan.execution_id),
            step=plan.step,
            task="claim",
            directory=worker.directory,
            scratch=worker.scratch / str(plan.execution_id),
        )

    async def _auth(self, session: Session | None, more: Json) -> Any:
        rendered = self._body.rendered(self._cursor["auth"], session, more)
        return rendered if session is None else await session.auth(rendered)

    async def _rows(self, call: Call) -> list[Json]:
        worker = self._body.worker
        for tried in range(_TRIES):
            async with worker.registry.turn(call.kind):
                outcome = await worker.registry.run(call)
            if outcome.error is None:
                rows: list[Json] = outcome.result.get("rows", [])
                return rows
            if not outcome.error.get("retryable") or tried == _TRIES - 1:
                message = f"the claim of step '{call.step}' failed: {outcome.error['message']}"
                raise ClaimFailed({**outcome.error, "message": message})
            await worker.clock.sleep(_DELAY * 2**tried)
        raise AssertionError("the last try returns or raises")


def _manner(kind: str, statement: str) -> Json:
    """How a claim is sent. One statement that waits for no lock needs no transaction around it: it is one."""
    if kind == "postgres" and "skip locked" in statement.lower() and len(split(statement)) == 1:
        return {"autocommit": True}
    return {}


async def _encoded(table: pa.Table) -> bytes:
    return feather_bytes(table)


async def _encoded_large(table: pa.Table) -> bytes:
    return await in_thread(b"".join, feather_pieces(table))
